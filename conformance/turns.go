package conformance

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

var turnClauses = []Clause{
	{"turns-in-memory", "Goroutines that share a lease must not need the store for each turn, because that is why they share it.", turnsInMemory},
	{"turns-ranges", "The tokens of a lease must lie between those of the leases before and after it, or the storage cannot order the writes.", turnsRanges},
	{"turns-over-break", "A process may pass on a lease that it does not know to be over, so the token of that turn must be below the successor's.", turnsOverBreak},
	{"turns-options", "A goroutine that asks for other options than the holder's must not be passed the holder's lease.", turnsOptions},
	{"turns-validity", "A goroutine that asks for much validity must not be passed a lease that has little left.", turnsValidity},
	{"turns-max-hold", "The maximum hold of a turn is its own, not that of the turn before.", turnsMaxHold},
	{"turns-renewal", "A renewal that is under way when the lease is passed on must neither be lost nor hold up the next turn.", turnsRenewal},
	{"turns-given-up", "A goroutine whose context has ended must not be passed a lease, which nobody would give back.", turnsGivenUp},
	{"turns-loss", "A lease that was lost must not be passed on.", turnsLoss},
}

// stands gives a waiter time to enter the line behind a goroutine of its own client. The
// store does not know of it. On a machine that is too slow the clause sees nothing.
func (x *trial) stands(w *waiter) {
	select {
	case <-w.done:
		x.failf("Lock of a held name returned (error %v)", w.err)
	case <-time.After(20 * time.Millisecond):
	}
}

// turnsInMemory has a goroutine cut the network in its turn, and the next one heal it. If
// the lease must go back to the store instead, a timer heals the network.
func turnsInMemory(x *trial) {
	a, name := x.networked(), x.name()
	for deadline := time.Now().Add(x.h.patience); time.Now().Before(deadline); {
		leases, passed := x.passOnUnheard(a, name)
		switch {
		case passed:
			return
		case leases == 0:
			x.skip("lease that goroutines share (driver.LeaseOf)")
		}
	}
	x.failf("goroutines have turns with one lease, and none was passed on while the store was silent")
}

// passOnUnheard has some goroutines take turns. Every fourth turn cuts the network before
// it ends. It returns how many turns shared a lease with the turn before, and whether one
// of them began while the network was cut.
func (x *trial) passOnUnheard(a Process, name string) (shared int, passed bool) {
	const goroutines, rounds = 4, 16
	var mu sync.Mutex // exclusion is checked elsewhere
	var last uint64
	var cut *time.Timer // heals the network if no turn has
	turn := func(k int) {
		lock := x.lock(a.Locker, name, x.long())
		mu.Lock()
		unheard := cut != nil && cut.Stop()
		if unheard {
			a.Deliver()
		}
		if driver.LeaseOf(lock) == last {
			shared++
			passed = passed || unheard
		}
		last = driver.LeaseOf(lock)
		if cut = nil; k%4 == 0 {
			a.Cut()
			cut = time.AfterFunc(50*time.Millisecond, a.Deliver)
		}
		mu.Unlock()
		if err := x.unlockInACrowd(lock); err != nil {
			x.failf("Unlock: %w", err)
		}
	}
	x.together(goroutines, func() {
		for k := range rounds {
			turn(k)
		}
	})
	a.Deliver()
	return shared, passed
}

// turnsRanges has goroutines of two clients take turns. One client then breaks a lock of
// the other, which is later cut off.
func turnsRanges(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	var mu sync.Mutex
	order := tokenOrder{x: x}
	var leases []uint64
	note := func(lock *locker.Lock, when string) {
		mu.Lock()
		defer mu.Unlock()
		order.next(lock, when)
		if lease := driver.LeaseOf(lock); len(leases) == 0 || leases[len(leases)-1] != lease {
			if slices.Contains(leases, lease) {
				x.failf("lease %d has come back %s", lease, when)
			}
			leases = append(leases, lease)
		}
	}
	crowd := func(when string, ls ...locker.Locker) {
		x.each(ls, 4, func(l locker.Locker) {
			for range 8 {
				lock := x.lock(l, name, x.long())
				note(lock, when)
				x.unlock(lock)
			}
		})
	}
	crowd("in a crowd", a.Locker, b)
	if breaker, ok := x.breaks(b); ok {
		held := x.lock(a.Locker, name, x.long())
		note(held, "before a break")
		x.breakNow(breaker, name, "a held lock")
		next := x.lock(b, name, x.long())
		note(next, "after a break")
		x.unlock(next)
		_ = held.Unlock(x.patient()) // it was lost
		crowd("in a crowd after a break", a.Locker, b)
	}
	held := x.lock(a.Locker, name, x.ttl())
	note(held, "before a cut")
	a.Cut()
	next := x.lock(b, name, x.long())
	note(next, "after the holder was cut off")
	x.unlock(next)
	crowd("in a crowd after a cut", b, x.locker())
}

// together calls f in n goroutines, and fails as the first of them does.
func (x *trial) together(n int, f func()) {
	x.each(make([]locker.Locker, 1), n, func(locker.Locker) { f() })
}

// each calls f in n goroutines for each Locker, and fails as the first of them does.
func (x *trial) each(ls []locker.Locker, n int, f func(locker.Locker)) {
	var calls []func()
	for _, l := range ls {
		for range n {
			calls = append(calls, func() { f(l) })
		}
	}
	x.atOnce(calls)
}

// atOnce makes each call in a goroutine of its own, and fails as the first of them does.
func (x *trial) atOnce(calls []func()) {
	results := make(chan any, len(calls))
	for _, call := range calls {
		go func() {
			defer func() { results <- recover() }()
			call()
		}()
	}
	for range calls {
		if stopped := <-results; stopped != nil {
			panic(stopped) // a verdict, now on the goroutine of the check
		}
	}
}

// turnsOverBreak breaks the lock of a client that has another goroutine in line. Then
// somebody else takes it.
func turnsOverBreak(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	breaker := x.breaker(b)
	held := x.lock(a, name, x.long())
	w := x.wait(x.patient(), a, name, x.long())
	x.stands(w)
	x.breakNow(breaker, name, "a held lock")
	s := x.wait(x.patient(), b, name, x.long())
	first, _ := x.next([]*waiter{s, w}, "after Break")
	_ = held.Unlock(x.patient()) // it may have been lost
	if first == w {              // its process learned of the break, and asked before s
		_ = w.lock.Unlock(x.patient())
		if successor := x.served(s, "after Break"); successor.Token() <= w.lock.Token() {
			x.failf("token %d was granted after token %d", successor.Token(), w.lock.Token())
		}
		x.unlock(s.lock)
		return
	}
	select {
	case <-w.done:
		if w.err == nil && w.lock.Token() >= s.lock.Token() {
			x.failf("a goroutine was granted token %d while the holder that came after the break had %d", w.lock.Token(), s.lock.Token())
		}
		if w.err == nil {
			_ = w.lock.Unlock(x.patient()) // of a lease that is over
		}
		x.unlock(s.lock)
	case <-time.After(100 * time.Millisecond): // it asks the store, and waits there
		x.unlock(s.lock)
		lock := x.served(w, "after the holder that came after the break")
		if lock.Token() <= s.lock.Token() {
			x.failf("token %d was granted after token %d", lock.Token(), s.lock.Token())
		}
		x.unlock(lock)
	}
}

// full returns for how long a lock with the long TTL is valid without renewal: for less
// than the TTL if it lasts as long as a session.
func (x *trial) full(l locker.Locker) time.Duration {
	lock := x.lock(l, x.name(), x.long(), locker.WithoutRenewal())
	defer x.unlock(lock)
	return time.Until(lock.Deadline())
}

// turnsOptions has goroutines wait behind a holder that has other options. A second client
// shows whether the store knows of the longer TTL.
func turnsOptions(x *trial) {
	l, other, name := x.locker(), x.locker(), x.name()
	full := x.full(l)
	held := x.lock(l, name, x.ttl())
	w := x.wait(x.patient(), l, name, x.long(), locker.WithoutRenewal())
	x.stands(w)
	x.unlock(held)
	longer := x.served(w, "after unlock")
	if left := time.Until(longer.Deadline()); left < full/3 {
		x.failf("a goroutine that asked for a TTL of %v was given a lock that ends in %v, and one of a free name in %v", x.longTTL(), left, full)
	}
	if got, err := other.Lock(x.within(x.h.TTL+x.h.TTL/2), name); err == nil {
		if longer.Err() == nil {
			x.failf("another client was given the lock after the TTL of a goroutine that has unlocked: the holder's is %v", x.longTTL())
		}
		x.unlock(got) // it lasted as long as a session
		longer = x.lock(l, name, x.long(), locker.WithoutRenewal())
	}
	w = x.wait(x.patient(), l, name, x.ttl(), locker.WithoutRenewal())
	x.stands(w)
	x.unlock(longer)
	ends := x.served(w, "after unlock")
	x.event(ends.Lost(), "a lock without renewal ends, though the one before it had a longer TTL")
	if i, ok := x.inspects(l); ok {
		x.holderIsShown(l, i)
	}
}

// holderIsShown has a goroutine follow one that has another text as its holder.
func (x *trial) holderIsShown(l locker.Locker, i locker.Inspector) {
	name := x.name()
	held := x.lock(l, name, locker.WithHolder("first"))
	w := x.wait(x.patient(), l, name, locker.WithHolder("second"))
	x.stands(w)
	x.unlock(held)
	lock := x.served(w, "after unlock")
	if got := x.inspect(i, name).Holder; got != "second" {
		x.failf("Inspect shows the holder %q, want %q", got, "second")
	}
	x.unlock(lock)
}

func turnsValidity(x *trial) {
	l, name := x.locker(), x.name()
	if x.full(l) < x.longTTL()/2 {
		x.skip("lease of a lock's own, which a renewal of others does not lengthen")
	}
	for range 3 { // a machine that stalls may use up what is wanted
		held := x.lock(l, name, x.long(), locker.WithoutRenewal())
		least := x.longTTL() - driver.Drift(x.longTTL()) - x.longTTL()/20
		w := x.wait(x.patientFor(x.longTTL()/10), l, name, x.long(), locker.WithoutRenewal(), locker.WithMinValidity(least))
		x.stands(w)
		<-time.After(max(x.longTTL()/10, 50*time.Millisecond))
		begun := time.Now()
		x.unlock(held)
		x.returned(w, "after unlock")
		if w.err != nil {
			if took := time.Since(begun); took < x.longTTL()/40 {
				x.failf("a goroutine that stood in line wanted %v of validity and was refused %v after the one before it unlocked: validity counts from the call: %w", least, took, w.err)
			}
			continue
		}
		if end := w.lock.Deadline(); !end.IsZero() && end.Sub(held.Deadline()) < x.longTTL()/20 {
			x.failf("a goroutine that wanted %v of validity was given a lock that ends %v after its predecessor's", least, end.Sub(held.Deadline()))
		}
		x.unlock(w.lock)
		return
	}
}

func turnsMaxHold(x *trial) {
	l, name := x.locker(), x.name()
	held := x.lock(l, name, x.long(), locker.WithMaxHold(x.h.TTL))
	w := x.wait(x.patient(), l, name, x.long())
	x.stands(w)
	x.unlock(held)
	next := x.served(w, "after unlock")
	w = x.wait(x.patient(), l, name, x.long(), locker.WithMaxHold(x.h.TTL/2))
	x.stands(w)
	<-time.After(x.h.TTL + x.h.TTL/4)
	if err := next.Err(); err != nil {
		x.failf("a lock without a bound was lost when that of its predecessor was over: %w", err)
	}
	begun := time.Now()
	x.unlock(next)
	bound := x.served(w, "after unlock")
	x.event(bound.Lost(), "a lock is lost at the end of its own WithMaxHold")
	if lasted := time.Since(begun); lasted < x.h.TTL/2-x.h.TTL/20 {
		x.failf("a goroutine that stood in line was given a lock with a maximum hold of %v, which was lost after %v: it counts from the call", x.h.TTL/2, lasted)
	}
	x.unlock(x.lock(l, name))
}

// turnsRenewal passes a lease on while a renewal is under way, many times.
func turnsRenewal(x *trial) {
	l, name := x.locker(), x.name()
	held := x.lock(l, name, x.long())
	for round := range 20 {
		w := x.wait(x.patient(), l, name, x.long())
		x.stands(w)
		begins, renewed := make(chan struct{}), make(chan struct{})
		go func() {
			close(begins)
			_ = held.Renew(x.patient()) // or the lock was unlocked before
			close(renewed)
		}()
		if round%2 == 0 { // in the other rounds either may come first
			<-begins
			runtime.Gosched()
		}
		x.unlock(held)
		<-renewed
		held = x.served(w, "after an unlock that met a renewal")
	}
	x.unlock(held)
}

// turnsGivenUp ends the context of the next goroutine at the moment of the unlock.
func turnsGivenUp(x *trial) {
	l, name := x.locker(), x.name()
	for range 20 {
		held := x.lock(l, name, x.long())
		ctx, cancel := context.WithCancel(x.ctx)
		w := x.wait(ctx, l, name, x.long())
		x.stands(w)
		go cancel()
		x.unlock(held)
		x.returned(w, "when its context ends")
		if w.err == nil {
			x.unlock(w.lock)
		}
	}
	x.unlock(x.lock(l, name))
}

// turnsLoss waits for the end of a lease whose client has another goroutine in line.
func turnsLoss(x *trial) {
	l, name := x.locker(), x.name()
	for range 3 { // a machine that stalls may lose what was granted at once
		held := x.lock(l, name, x.ttl(), locker.WithoutRenewal())
		w := x.waitBehind(held, l, x.ttl(), locker.WithoutRenewal())
		next := x.served(w, "after its predecessor's lease had ended")
		x.alone(held, w)
		if driver.LeaseOf(next) == driver.LeaseOf(held) || next.Token() <= held.Token() {
			x.failf("a goroutine was given token %d of lease %d after the lease of token %d had ended", next.Token(), driver.LeaseOf(next), held.Token())
		}
		if next.Err() == nil {
			_ = next.Unlock(x.patient()) // it may have been lost by now
			return
		}
	}
	x.failf("each lock that a goroutine was given after its predecessor's lease had ended was lost from the start")
}
