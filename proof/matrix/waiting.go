package matrix

import (
	"errors"
	"sync"
	"time"

	"github.com/lockstile/locker"
)

// Waiting is a Lock that a worker was told to make, and that may not have been granted
// yet.
type Waiting struct {
	worker *Worker
	since  locker.Instant
	end    <-chan result // has room, so that Wait need not be called
}

type result struct {
	lock WorkerLock
	err  error
}

// Locking starts a Lock and does not wait for it.
func (w *Worker) Locking() Waiting { return w.locking(order{Verb: "lock"}) }

// LockingLong is Locking for a holder that need not renew while the scenario goes on: a
// renewal would hide what others have done to its lock.
func (w *Worker) LockingLong() Waiting {
	return w.locking(order{Verb: "lock", NoRenew: true, TTL: 10 * w.play.TTL})
}

func (w *Worker) locking(o order) Waiting {
	p, end := w.play, make(chan result, 1)
	answer := w.tell(w.fill(o))
	p.asking.Go(func() {
		var r result
		err := try(func() { r.lock, r.err = w.persist(answer) })
		r.err = errors.Join(r.err, err)
		end <- r
	})
	return Waiting{w, locker.Now(), end}
}

// Wait waits for the lock.
func (p Waiting) Wait() WorkerLock { return p.ended(<-p.end) }

func (p Waiting) ended(r result) WorkerLock {
	p.worker.play.must(r.err)
	return r.lock
}

// now counts the wait from now.
func (p Waiting) now() Waiting {
	p.since = locker.Now()
	return p
}

// persist asks again after a Lock that has failed, until patience ends: stores that do
// not answer are what the scenarios are about.
func (w *Worker) persist(answer <-chan report) (WorkerLock, error) {
	end := time.Now().Add(patience)
	for {
		l, err := w.claimed(w.granted(w.play.name, answer))
		var no *refusal
		switch {
		case !errors.As(err, &no):
			return l, err
		case no.NoKind && w.play.kind(w.Name) != locker.Exclusive:
			w.play.History.untrue("it declares the kind %v, and refuses it: %v", w.play.kind(w.Name), no)
			return l, &standstill{no}
		case time.Now().After(end):
			return l, &standstill{no}
		}
		w.play.History.mark("%v", no)
		w.play.Sleep(w.play.TTL / 20)
		answer = w.tell(w.fill(order{Verb: "lock"}))
	}
}

// Within waits for d at most and reports whether the lock was granted.
func (p Waiting) Within(d time.Duration) (WorkerLock, bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case r := <-p.end:
		return p.ended(r), true
	case <-timer.C:
		return WorkerLock{}, false
	}
}

// NextWithin waits for the first lock after a fault, and notes how long that took. If the
// lock does not come within d, mend is called, and then it must come: some stores free a
// lock only when the connection ends.
func (p Waiting) NextWithin(d time.Duration, mend func()) WorkerLock {
	l, ok := p.Within(d)
	if !ok {
		mend()
		l = p.Wait()
	}
	p.worker.play.Waited = locker.Now().Sub(p.since)
	return l
}

// Serve waits for all of them at once. Each writes, holds the lock for that long, and
// unlocks.
func (p *Play) Serve(hold time.Duration, all ...Waiting) {
	p.all(together(all, func(i int, waiting Waiting) {
		l := waiting.Wait()
		l.Write(i)
		p.Sleep(hold)
		l.Unlock()
	}))
}

// together has each of several do something in a goroutine of its own. The channel gets what came
// of each, and is closed then.
func together[T any](all []T, do func(i int, one T)) <-chan error {
	errs := make(chan error, len(all))
	var group sync.WaitGroup
	for i, one := range all {
		group.Go(func() { errs <- try(func() { do(i, one) }) })
	}
	go func() { group.Wait(); close(errs) }()
	return errs
}

// all waits for the end of each that is doing something at once.
func (p *Play) all(errs <-chan error) {
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	p.must(all)
}

// standstill is the error of a store that grants nothing until patience ends. That is a
// result, and does not make the scenario unplayed.
type standstill struct{ error }

func (s *standstill) Unwrap() error { return s.error }
