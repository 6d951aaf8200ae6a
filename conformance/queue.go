package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
)

var queueClauses = []Clause{
	{"order", "A backend that declares itself fair must serve waiters in order of arrival, or some starve.", order},
	{"bounded-turns", "Goroutines of one process that hand the lock to each other must let other processes in.", boundedTurns},
	{"many-waiters-one-client", "Every waiter must be served once: one that is forgotten hangs, and one that is served twice breaks exclusion.", manyWaitersOneClient},
	{"many-waiters", "Every waiter of every process must be served once, however many there are.", manyWaiters},
	{"dead-waiter", "A waiter whose machine is gone must not hold up those behind it.", deadWaiter},
}

// order has waiters in a line for some of their TTLs, and sees who is served first.
func order(x *trial) {
	holder := x.locker()
	if !holder.Guarantees().Fair {
		x.skip("promise to be fair (Guarantees.Fair)")
	}
	i, ok := x.inspects(holder)
	if !ok {
		x.skipUnless(true, "Fair", "locker.Inspector to see who has arrived", "Give Process.Locker an Inspect that counts waiters, in your test alone if need be")
	}
	for _, ttl := range []time.Duration{x.h.TTL, 3 * x.h.TTL, 9 * x.h.TTL} {
		if x.inOrder(i, holder, ttl) {
			return
		}
	}
	x.failf("a waiter was refused, because its answer had come too late, in three lines")
}

// inOrder has waiters in a line, and reports whether all of them were served. On a machine
// that stalls for a TTL one may be refused, and rightly so.
func (x *trial) inOrder(i locker.Inspector, holder locker.Locker, ttl time.Duration) bool {
	const waiters = 6
	name := x.name()
	held := x.lock(holder, name)
	var line []*waiter
	for n := range waiters {
		if n == waiters/2 {
			time.Sleep(ttl / 2)
		}
		line = append(line, x.wait(x.patientFor(4*ttl), x.locker(), name, locker.WithTTL(ttl)))
		x.queuedAtLeast(i, name, len(line))
	}
	time.Sleep(11 * ttl / 4) // places that end with their TTL: the first half has begun again after the second
	x.unlock(held)
	for left := line; len(left) > 0; {
		w, rest := x.first(left, "after unlock")
		if w.refused() {
			return false
		}
		x.served(w, "after unlock")
		if w != left[0] {
			x.failf("waiter %d was served before waiter %d, who came first", slices.Index(line, w), waiters-len(left))
		}
		x.unlock(w.lock)
		left = rest
	}
	return true
}

func (x *trial) queuedAtLeast(i locker.Inspector, name string, n int) {
	x.eventually(fmt.Sprintf("Inspect counts %d waiters", n), func() bool { return x.inspect(i, name).Waiters >= n })
}

func boundedTurns(x *trial) {
	busy, other, name := x.locker(), x.locker(), x.name()
	held := x.lock(busy, name)
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	var greedy []*waiter
	for range 4 {
		w := &waiter{done: make(chan struct{})}
		greedy = append(greedy, w)
		go func() {
			defer close(w.done)
			for ctx.Err() == nil && w.err == nil {
				w.err = lockAndUnlock(ctx, busy, name)
			}
		}()
	}
	w := x.wait(x.patient(), other, name)
	x.waits(w, other, name)
	x.unlock(held)
	lock := x.served(w, "while goroutines of another client take the lock again and again")
	cancel()
	x.unlock(lock)
	for _, w := range greedy {
		x.returned(w, "when its context ends")
		if w.err != nil && ctx.Err() == nil {
			x.failf("one of the busy goroutines: %w", w.err)
		}
	}
}

func lockAndUnlock(ctx context.Context, l locker.Locker, name string) error {
	lock, err := l.Lock(ctx, name)
	if err != nil {
		return err
	}
	return lock.Unlock(ctx)
}

func manyWaitersOneClient(x *trial) { x.serveMany(x.locker(), x.lockers(1), 200) }

func manyWaiters(x *trial) { x.serveMany(x.locker(), x.lockers(5), 200) }

// serveMany has n goroutines wait for one name, spread over ls.
func (x *trial) serveMany(holder locker.Locker, ls []locker.Locker, n int) {
	name := x.name()
	held := x.lock(holder, name)
	var inside, served atomic.Int32
	results := make(chan error, n)
	for k := range n {
		go func() {
			lock, err := x.lockSlowly(x.patient(), ls[k%len(ls)], name)
			if err == nil {
				if inside.Add(1) != 1 {
					err = fmt.Errorf("two waiters were served at once")
				}
				served.Add(1)
				inside.Add(-1)
				if failed := x.unlockInACrowd(lock); err == nil {
					err = failed
				}
			}
			results <- err
		}()
	}
	x.unlock(held)
	for k := range n {
		if err := receive(x, 2*x.h.patience, results, fmt.Sprintf("waiter %d of %d is served", k+1, n)); err != nil {
			x.failf("one of %d waiters, after %d were served: %w", n, served.Load(), err)
		}
	}
	x.freeBeforeLease(holder, name, "after all waiters have unlocked")
}

// deadWaiter cuts off the first in the queue. The one behind it must be served, though
// the first says nothing any more, not even that it is gone.
func deadWaiter(x *trial) {
	holder, dead, b, name := x.locker(), x.networked(), x.locker(), x.name()
	held := x.lock(holder, name)
	first := x.wait(x.patient(), dead.Locker, name, x.ttl())
	x.waits(first, holder, name)
	second := x.wait(x.patient(), b, name)
	if i, ok := x.inspects(holder); ok {
		x.queuedAtLeast(i, name, 2)
	}
	dead.Cut()
	x.unlock(held)
	lock := x.served(second, "while the waiter before it is cut off")
	if first.hasLock() {
		x.failf("two waiters hold the lock, one of them is cut off")
	}
	x.unlock(lock)
	dead.Heal()
	x.returned(first, "after its network has healed")
	if first.err == nil {
		_ = first.lock.Unlock(x.ctx)
	}
	x.unlock(x.lock(b, name))
}

// hasLock reports whether the waiter believes that it holds the lock now.
func (w *waiter) hasLock() bool {
	select {
	case <-w.done:
		return w.err == nil && w.lock.Err() == nil
	default:
		return false
	}
}
