package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
)

var waitingClauses = []Clause{
	{"waiting-is-told", "A waiter that is not told of a release sleeps until the holder's lease would have ended.", waitingIsTold},
	{"wait-cancelled", "A waiter that gives up must not be given the lock later, nor hold up the others.", waitCancelled},
	{"wait-cancelled-in-line", "A goroutine that gives up behind others of its process must not break the line.", waitCancelledInLine},
	{"wait-cancelled-at-the-turn", "A wait that ends at the moment of the hand-over must pass the lock on, or the name stays locked by nobody.", waitCancelledAtTheTurn},
	{"impatient-neighbours", "Callers that give up must not spoil the attempts of others of their process, which have time.", impatientNeighbours},
	{"wait-bound", "A caller that does not want to wait for longer than WithWait must hear by then that the lock is taken; and a lock that came in time must not end with the wait.", waitBound},
	{"context-over", "A call whose context has already ended must not leave a lock that nobody will unlock.", contextOver},
	{"curious-context", "A context may be a program's own, with methods that ask a lock: calls must not stand still because of them.", curiousContext},
}

// waitingIsTold has a holder with a long lease, which ends by unlock and not by
// itself: the waiters must not sleep until then.
func waitingIsTold(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	for round := range 3 {
		held := x.lock(a, name, x.long(), locker.WithoutRenewal())
		began := time.Now()
		w := x.wait(x.patient(), b, name, x.long())
		x.waits(w, b, name)
		x.unlock(held)
		lock := x.served(w, "after unlock")
		x.inTime(began, time.Since(began), x.longTTL()*9/10, "in round %d the waiter slept until the end of a lease of %v, though the lock was unlocked", round, x.longTTL())
		x.unlock(lock)
	}
}

// waits returns when w waits, and fails if Lock returns first.
func (x *trial) waits(w *waiter, l locker.Locker, name string) {
	if !x.seenWaiting(w, l, name) {
		x.failf("Lock of a held name returned (error %v)", w.err)
	}
}

// seenWaiting waits until w waits or has returned, and reports which. Inspect says so, if there
// is one; otherwise w waits if it does not return for a while.
func (x *trial) seenWaiting(w *waiter, l locker.Locker, name string) (waits bool) {
	if i, ok := x.inspects(l); ok {
		x.eventually("Inspect counts the waiter", func() bool {
			waits = x.inspect(i, name).Waiters >= 1
			return waits || w.back()
		})
		return waits
	}
	select {
	case <-w.done:
		return false
	case <-time.After(x.h.TTL / 4):
		return true
	}
}

// waitTold starts a waiter, and returns when its own Locker has been told that the lock is taken: from then
// on it waits through a silence of the store. Inspect may count a waiter who has not heard that yet. A Locker that
// is not on package driver may have no events, and is given a TTL.
func (x *trial) waitTold(ctx context.Context, a, b locker.Locker, name string, opts ...locker.Option) *waiter {
	told := make(chan struct{})
	w := x.wait(ctx, a, name, append(opts, locker.WithObserver(func(e locker.Event) {
		if e.Type == locker.EventWaiting {
			close(told)
		}
	}))...)
	x.waits(w, b, name)
	select {
	case <-told:
	case <-w.done:
	case <-time.After(x.h.TTL):
	}
	return w
}

func waitCancelled(x *trial) {
	a, b, c, name := x.locker(), x.locker(), x.locker(), x.name()
	held := x.lock(a, name)
	for _, end := range x.endings() {
		var w *waiter
		for d := x.h.TTL / 4; d < x.h.patience; d *= 2 {
			w = x.wait(end.begin(d), b, name)
			x.returned(w, "when its context ends")
			if !w.late && !errors.Is(w.err, locker.ErrUnavailable) { // else the machine is slower than that, or the store
				break
			}
		}
		switch {
		case w.err == nil:
			x.failf("Lock of a held name succeeded")
		case !errors.Is(w.err, locker.ErrTaken) || !errors.Is(w.err, end.cause):
			x.failf("a wait that ended with its context returned %q, want ErrTaken and the cause %q", w.err, end.cause)
		case w.lock != nil:
			x.failf("Lock returned both a lock and the error %q", w.err)
		}
	}
	if err := held.Err(); err != nil {
		x.failf("the holder's lock was lost to a waiter that gave up: %w", err)
	}
	if i, ok := x.inspects(a); ok {
		x.settles("Inspect counts no waiter that gave up", func() bool { return x.inspect(i, name).Waiters == 0 })
	}
	x.unlock(held)
	x.free(c, name, "of a name that a waiter had given up on")
	x.free(b, name, "by the client whose wait was cancelled")
}

// curious is a context whose methods ask a lock.
type curious struct {
	context.Context
	lock *locker.Lock
}

func (c curious) ask()                        { _, _ = c.lock.Err(), c.lock.Deadline() }
func (c curious) Err() error                  { c.ask(); return c.Context.Err() }
func (c curious) Done() <-chan struct{}       { c.ask(); return c.Context.Done() }
func (c curious) Deadline() (time.Time, bool) { c.ask(); return c.Context.Deadline() }
func (c curious) Value(key any) any           { c.ask(); return c.Context.Value(key) }

// curiousContext makes calls in contexts that ask a lock of the same Locker: calls that are
// refused, wait, are granted, and end with their contexts.
func curiousContext(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	held, others := x.lock(a, x.name(), x.long()), x.lock(b, name, x.long())
	asks := func(ctx context.Context) context.Context { return curious{ctx, held} }
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = a.TryLock(asks(x.patient()), name, x.long())
		_, _ = a.Lock(asks(over()), name, x.long())
		_ = held.Renew(asks(over()))
		_ = held.Renew(asks(x.patient()))
		behind := make(chan struct{})
		go func() {
			defer close(behind)
			_, _ = a.Lock(asks(x.within(x.h.TTL/4)), name, x.long())
		}()
		_, _ = a.Lock(asks(x.within(x.h.TTL/4)), name, x.long())
		<-behind
		if lock, err := a.Lock(asks(x.patient()), x.name(), x.long()); err == nil {
			_ = lock.Unlock(asks(over()))
		}
	}()
	x.event(done, "calls return whose contexts ask a lock of the same Locker")
	x.unlock(held)
	x.unlock(others)
}

// ending is a way in which a caller's context ends.
type ending struct {
	begin func(time.Duration) context.Context
	cause error // that the caller's error must say
}

func (x *trial) endings() []ending {
	why := errors.New("the caller's own reason")
	return []ending{
		{x.within, context.DeadlineExceeded},
		{func(d time.Duration) context.Context { return x.cancelledAfter(d, context.Canceled) }, context.Canceled},
		{func(d time.Duration) context.Context { return x.cancelledAfter(d, why) }, why},
		{func(d time.Duration) context.Context { return x.cancelledAfter(d, locker.ErrTaken) }, locker.ErrTaken}, // as of a group of goroutines, one of which was told so about another name
	}
}

func (x *trial) cancelledAfter(d time.Duration, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(x.ctx)
	time.AfterFunc(d, func() { cancel(cause) })
	return ctx
}

func waitCancelledInLine(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	held := x.lock(a, name)
	first := x.wait(x.patient(), b, name)
	x.waits(first, b, name)
	ctx, cancel := context.WithCancel(x.ctx)
	var quitters []*waiter
	for range 10 {
		quitters = append(quitters, x.wait(ctx, b, name))
	}
	last := x.wait(x.patient(), b, name)
	cancel()
	for _, w := range quitters {
		x.returned(w, "when its context ends")
		if w.err == nil || !errors.Is(w.err, context.Canceled) {
			x.failf("a wait that was cancelled returned %v", w.err)
		}
	}
	x.unlock(held)
	w, rest := x.next([]*waiter{first, last}, "though others of its process gave up")
	x.unlock(w.lock)
	w, _ = x.next(rest, "though others before it gave up")
	x.unlock(w.lock)
	x.free(a, name, "after all waiters have unlocked")
}

// waitCancelledAtTheTurn has waits end at all moments around the hand-over.
func waitCancelledAtTheTurn(x *trial) {
	const clients, goroutines, rounds = 2, 6, 40
	name := x.name()
	ls := x.lockers(clients)
	var shared critical
	results := make(chan error, clients*goroutines)
	for k := range clients * goroutines {
		go func() {
			results <- x.impatient(ls[k%clients], name, &shared, k, rounds)
		}()
	}
	for range clients * goroutines {
		if err := receive(x, x.h.patience, results, "waits return whose contexts have ended"); err != nil {
			x.failf("among waits that end at all moments: %w", err)
		}
	}
	x.freeBeforeLease(x.locker(), name, "after waits that ended at all moments")
}

func (x *trial) impatient(l locker.Locker, name string, shared *critical, k, rounds int) error {
	for round := range rounds {
		patience := time.Duration((7*k+13*round)%50) * 100 * time.Microsecond
		lock, err := l.Lock(x.within(patience), name, x.long())
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case err != nil:
			return err
		case shared.inside.Add(1) != 1:
			return errors.New("two holders at once")
		}
		time.Sleep(200 * time.Microsecond) // work, so that others wait
		shared.inside.Add(-1)
		if err := x.unlockInACrowd(lock); err != nil {
			return err
		}
	}
	return nil
}

// impatientNeighbours has goroutines try names with contexts that end at all moments of an
// attempt, while another of their process locks names that nobody else wants.
func impatientNeighbours(x *trial) {
	const impatient, rounds = 4, 50
	l := x.locker()
	tries := make(chan struct{}, 4*impatient) // beside each round: where a context that ends costs a connection, more keep the machine busy
	over, stop := context.WithCancel(x.ctx)
	defer stop()
	for k := range impatient {
		name := x.name()
		go func() {
			for round := 0; ; round++ {
				select {
				case <-tries:
				case <-over.Done():
					return
				}
				patience := time.Duration((7*k+13*round)%30) * 100 * time.Microsecond
				if lock, err := l.TryLock(x.within(patience), name, x.long()); err == nil {
					_ = lock.Unlock(x.ctx) // other clauses check this
				}
				time.Sleep(time.Millisecond) // so that what they leave to be cleaned up stays little
			}
		}()
	}
	for range rounds {
		for len(tries) < cap(tries) {
			tries <- struct{}{}
		}
		x.unlock(x.lock(l, x.name(), x.long()))
	}
}

func contextOver(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	why := errors.New("the caller's own reason")
	ctx, cancel := context.WithCancelCause(x.ctx)
	cancel(why)
	for verb, call := range map[string]func(context.Context, string, ...locker.Option) (*locker.Lock, error){
		"Lock": a.Lock, "TryLock": a.TryLock,
	} {
		lock, err := call(ctx, name, x.long())
		if err == nil || lock != nil {
			x.failf("%s with a context that is over returned %s and error %v", verb, had(lock), err)
		}
		if !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
			x.failf("%s with a context that is over returned %q, want its cause", verb, err)
		}
		x.free(b, name, "after "+verb+" with a context that was over")
	}
}

func waitBound(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	held := x.lock(a, name)
	other := x.lock(b, x.name(), locker.WithWait(x.h.TTL))
	for d := x.h.TTL / 4; ; d *= 2 {
		w := x.wait(x.patient(), b, name, locker.WithWait(d))
		x.returned(w, "when WithWait is over")
		if errors.Is(w.err, locker.ErrUnavailable) && d < x.h.patience {
			continue // the machine is slower than that, or the store
		}
		if !errors.Is(w.err, locker.ErrTaken) || !errors.Is(w.err, context.DeadlineExceeded) {
			x.failf("Lock of a held name with WithWait(%v) returned %s and error %v, want ErrTaken and DeadlineExceeded", d, had(w.lock), w.err)
		}
		break
	}
	if err := other.Err(); err != nil {
		x.failf("a lock that came within WithWait was lost: %w", err)
	}
	if lock, err := b.TryLock(x.patient(), x.name(), locker.WithWait(time.Hour)); err == nil || errors.Is(err, locker.ErrTaken) {
		x.failf("TryLock with WithWait returned %s and error %v, want an error that refuses the option", had(lock), err)
	}
	x.unlock(other)
	x.unlock(held)
	x.free(b, name, "after a wait that ended with WithWait")
}
