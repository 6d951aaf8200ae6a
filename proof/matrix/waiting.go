package matrix

import (
	"errors"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// pending is a Lock that a worker was told to make, and that may not have been granted
// yet.
type pending struct {
	worker *worker
	since  driver.Instant
	end    <-chan result // has room, so that Wait need not be called
}

type result struct {
	lock workerLock
	err  error
}

// Locking starts a Lock and does not wait for it.
func (w *worker) Locking() pending { return w.locking(order{Verb: "lock"}) }

// LockingLong is Locking for a holder that need not renew while the scenario goes on: a
// renewal would hide what others have done to its lock.
func (w *worker) LockingLong() pending {
	return w.locking(order{Verb: "lock", NoRenew: true, TTL: 10 * w.play.TTL})
}

func (w *worker) locking(o order) pending {
	p, end := w.play, make(chan result, 1)
	answer := w.tell(w.fill(o))
	p.asking.Go(func() {
		var r result
		err := try(func() { r.lock, r.err = w.persist(answer) })
		r.err = errors.Join(r.err, err)
		end <- r
	})
	return pending{w, driver.Now(), end}
}

// Wait waits for the lock.
func (p pending) Wait() workerLock { return p.ended(<-p.end) }

func (p pending) ended(r result) workerLock {
	p.worker.play.must(r.err)
	return r.lock
}

// now counts the wait from now.
func (p pending) now() pending {
	p.since = driver.Now()
	return p
}

// persist asks again after a Lock that has failed, until patience ends: stores that do
// not answer are what the scenarios are about.
func (w *worker) persist(answer <-chan report) (workerLock, error) {
	end := time.Now().Add(patience)
	for {
		l, err := w.claimed(w.granted(w.play.name, answer))
		var no *refusal
		switch {
		case !errors.As(err, &no):
			return l, err
		case no.NoKind && w.play.kind(w.Name) != locker.KindExclusive:
			w.play.History.NoteUntrue("it declares the kind %v, and refuses it: %v", w.play.kind(w.Name), no)
			return l, &standstill{no}
		case time.Now().After(end):
			return l, &standstill{no}
		}
		w.play.History.Repeat("%v", no)
		w.play.Sleep(w.play.TTL / 20)
		answer = w.tell(w.fill(order{Verb: "lock"}))
	}
}

// Within waits for d at most and reports whether the lock was granted.
func (p pending) Within(d time.Duration) (workerLock, bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case r := <-p.end:
		return p.ended(r), true
	case <-timer.C:
		return workerLock{}, false
	}
}

// NextWithin waits for the first lock after a fault, and notes how long that took. If the
// lock does not come within d, mend is called, and then it must come: some stores free a
// lock only when the connection ends.
func (p pending) NextWithin(d time.Duration, mend func()) workerLock {
	l, ok := p.Within(d)
	if !ok {
		mend()
		l = p.Wait()
	}
	p.worker.play.Waited = driver.Now().Sub(p.since)
	return l
}

// Serve waits for all of them at once. Each writes, holds the lock for that long, and
// unlocks.
func (p *play) Serve(hold time.Duration, all ...pending) {
	p.all(together(all, func(i int, waiting pending) {
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
func (p *play) all(errs <-chan error) {
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
