package matrix

import (
	"errors"
	"time"

	"github.com/lockstile/locker"
)

// Waiting is a Lock that was asked for and may not have been granted yet.
type Waiting struct {
	worker *Worker
	since  locker.Instant
	end    <-chan outcome // has room: nobody has to wait for it
}

type outcome struct {
	grant Grant
	err   error
}

// Locking starts a Lock and does not wait for it.
func (w *Worker) Locking() Waiting { return w.locking(order{Verb: "lock"}) }

// LockingLong is Locking for a holder that does not need to renew while the play
// goes on: its renewals would cover up what others have done to its lock.
func (w *Worker) LockingLong() Waiting {
	return w.locking(order{Verb: "lock", NoRenew: true, TTL: 10 * w.play.TTL})
}

func (w *Worker) locking(o order) Waiting {
	p, end := w.play, make(chan outcome, 1)
	answer := w.tell(w.fill(o))
	p.asking.Go(func() {
		var o outcome
		err := p.step(func() { o.grant, o.err = w.persist(answer) })
		o.err = errors.Join(o.err, err)
		end <- o
	})
	return Waiting{w, locker.Now(), end}
}

// Wait waits for the lock.
func (p Waiting) Wait() Grant { return p.ended(<-p.end) }

func (p Waiting) ended(o outcome) Grant {
	p.worker.play.must(o.err)
	return o.grant
}

// now is the same, as if it had been asked for now.
func (p Waiting) now() Waiting {
	p.since = locker.Now()
	return p
}

// persist asks again where a Lock has failed, as long as patience lasts: stores
// that do not answer are part of the game.
func (w *Worker) persist(answer <-chan report) (Grant, error) {
	end := time.Now().Add(patience)
	for {
		g, err := w.claimed(w.granted(answer))
		var no *refusal
		switch {
		case !errors.As(err, &no):
			return g, err
		case time.Now().After(end):
			return g, &standstill{no}
		}
		w.play.History.mark("%v", no)
		w.play.Sleep(w.play.TTL / 20)
		answer = w.tell(w.fill(order{Verb: "lock"}))
	}
}

// Within waits for d at most and reports whether the lock was granted.
func (p Waiting) Within(d time.Duration) (Grant, bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case o := <-p.end:
		return p.ended(o), true
	case <-timer.C:
		return Grant{}, false
	}
}

// NextWithin waits for the lock as the next one after a fault. If it does not
// come while the dead holder's could have ended, mend is called, and then it
// must come. Some stores free a lock only when the connection ends.
func (p Waiting) NextWithin(d time.Duration, mend func()) Grant {
	g, ok := p.Within(d)
	if !ok {
		mend()
		g = p.Wait()
	}
	p.worker.play.Waited = locker.Now().Sub(p.since)
	return g
}

// Serve waits for all of them at once. Each holds the lock for a moment, writes,
// and gives it back.
func (p *Play) Serve(hold time.Duration, all ...Waiting) {
	errs := make(chan error, len(all))
	for i, waiting := range all {
		go func() {
			errs <- p.step(func() {
				g := waiting.Wait()
				g.Write(i)
				p.Sleep(hold)
				g.Unlock()
			})
		}()
	}
	for range all {
		p.must(<-errs)
	}
}

// standstill is a store that grants nothing for as long as patience lasts. That
// is a result.
type standstill struct{ error }

func (s *standstill) Unwrap() error { return s.error }
