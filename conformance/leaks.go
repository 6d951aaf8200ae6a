package conformance

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"

	"github.com/lockstile/locker"
)

var leakClauses = []Clause{
	{"goroutines", "A goroutine that is left by each lock or wait fills the memory of a process that runs for months.", goroutines},
	{"goroutines-held", "A goroutine for every held lock makes ten thousand locks expensive.", goroutinesHeld},
	{"connections", "A connection for every lock or waiter is more than servers allow.", connections},
}

// running counts the goroutines that this check has started, and those that
// they have started: a goroutine inherits its parent's profiler labels.
func (x *trial) running() int {
	n := 0
	for _, stack := range x.stacks() {
		if m := stackCount.FindSubmatch(stack); m != nil {
			count, _ := strconv.Atoi(string(m[1])) // digits
			n += count
		}
	}
	return n
}

// stacks has one stack for all goroutines that are at the same place. Those of the suite's own
// proxies are not the client's: there are three for each of its connections, which are counted
// by themselves.
func (x *trial) stacks() [][]byte {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		x.failf("the goroutine profile: %w", err)
	}
	return slices.DeleteFunc(bytes.Split(profile.Bytes(), []byte("\n\n")),
		func(stack []byte) bool {
			return !bytes.Contains(stack, []byte(x.label)) || bytes.Contains(stack, []byte("/netproxy."))
		})
}

// conns counts the connections of those clients that can say how many they have.
func (x *trial) conns() int {
	n := 0
	for _, c := range x.clients {
		if c.Network != nil {
			n += max(c.Conns(), 0)
		}
	}
	return n
}

// stackCount matches the head of a stack in the profile: how many goroutines
// have it.
var stackCount = regexp.MustCompile(`(?m)^(\d+) @`)

func goroutines(x *trial) {
	a, b, base := x.locker(), x.locker(), x.name()
	use := func(n int) {
		for k := range n {
			x.useAndCancel(a, b, fmt.Sprint(base, "/", k))
		}
	}
	use(10)
	const rounds, tries = 40, 3 // a client opens more connections where the machine is slow, up to a limit
	for range tries {
		before, open := x.running(), x.conns()
		use(rounds)
		if happens(x.h.patience, func() bool { return x.running() <= before+rounds/10 && x.conns() <= open+rounds/2 }) {
			return
		}
	}
	x.failf("%d locks and waits that were cancelled left more than %d goroutines or %d connections, %d times in a row; these goroutines are there:\n%s",
		rounds, rounds/10, rounds/2, tries, bytes.Join(x.stacks(), []byte("\n")))
}

// useAndCancel does what may leave something behind: a lock, a wait that ends
// with its context, an attempt that fails.
func (x *trial) useAndCancel(a, b locker.Locker, name string) {
	held := x.lock(a, name)
	ctx, cancel := context.WithCancel(x.ctx)
	other, same := x.wait(ctx, b, name), x.wait(ctx, a, name)
	x.taken(b, name, "of a held name")
	x.waits(other, b, name)
	cancel()
	x.returned(other, "when its context ends")
	x.returned(same, "when its context ends")
	_ = held.Lost()
	_ = held.Context()
	x.unlock(held)
}

func goroutinesHeld(x *trial) {
	l, base := x.locker(), x.name()
	x.connectionless(l)
	const few, many = 10, 210
	var locks []*locker.Lock
	hold := func(n int) {
		for len(locks) < n {
			locks = append(locks, x.lock(l, fmt.Sprint(base, "/", len(locks)), x.long()))
		}
	}
	hold(few)
	var before, after int
	x.settles("the number of goroutines stays the same after ten locks", func() bool {
		before, after = after, x.running()
		return before == after
	})
	hold(many)
	x.settles(fmt.Sprintf("there are about as many goroutines with %d locks held as with %d (%d)", many, few, before),
		func() bool { return x.running() <= before+(many-few)/2 })
	for _, lock := range locks {
		if err := x.unlockInACrowd(lock); err != nil {
			x.failf("Unlock of one of %d locks: %w", many, err)
		}
	}
}

// connectionless skips the clause where each lock is a connection.
func (x *trial) connectionless(l locker.Locker) {
	if l.Guarantees().FreedBy == locker.FreedByConnection {
		x.skip("lock without a connection of its own (Guarantees.FreedBy)")
	}
}

// connections compares their number with few locks and waiters to that with many.
func connections(x *trial) {
	a, holder, base := x.networked(), x.locker(), x.name()
	x.connectionless(holder)
	if a.Conns() < 0 {
		x.skip("count of connections (Network.Conns)")
	}
	i := x.inspector(holder)
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	var mine, theirs []*locker.Lock
	var waiters []*waiter
	grow := func(n int) int {
		for k := len(mine); k < n; k++ {
			mine = append(mine, x.lock(a.Locker, fmt.Sprint(base, "/mine/", k)))
			name := fmt.Sprint(base, "/theirs/", k)
			theirs = append(theirs, x.lock(holder, name))
			w := x.wait(ctx, a.Locker, name)
			waiters = append(waiters, w)
			x.eventually("Inspect counts a waiter, or it is refused", func() bool {
				return x.inspect(i, name).Waiters > 0 || w.refused() // a client may have a limit
			})
		}
		return a.Conns()
	}
	const few, many = 4, 64
	before := grow(few)
	if after := grow(many); after > before+(many-few)/2 {
		x.failf("with %d locks and %d waiters the client has %d connections, with %d each it had %d", many, many, after, few, before)
	}
	cancel()
	var done sync.WaitGroup
	for _, lock := range append(mine, theirs...) {
		done.Go(func() { _ = lock.Unlock(x.ctx) }) // another clause checks this
	}
	done.Wait()
	for _, w := range waiters {
		x.returned(w, "when its context ends")
	}
}
