package matrix

import (
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Lock has the worker wait for the lock, and claims the storage for it, as Do
// does with a guard.
func (w *Worker) Lock() WorkerLock {
	return w.Locking().Wait()
}

// LockPlain is Lock for a holder that claims nothing and does not renew.
func (w *Worker) LockPlain() WorkerLock {
	l, err := w.ask(order{Verb: "lock", NoRenew: true})
	w.play.must(err)
	return l
}

// Next is Lock for the first lock after a fault: it notes how long that took.
func (w *Worker) Next() WorkerLock {
	begin := locker.Now()
	l := w.Lock()
	w.play.Waited = locker.Now().Sub(begin)
	return l
}

// Try makes one attempt within bound.
func (w *Worker) Try(bound time.Duration) (WorkerLock, error) {
	return w.claimed(w.ask(order{Verb: "try", Bound: bound}))
}

func (w *Worker) ask(o order) (WorkerLock, error) {
	o = w.fill(o)
	return w.granted(o.Name, w.tell(o))
}

func (w *Worker) fill(o order) order {
	o.Name = w.play.name
	if o.Kind = w.play.kind(w.Name); o.Kind == locker.Slots {
		o.Slots = slots
	}
	if o.TTL == 0 {
		o.TTL = w.play.TTL
	}
	if o.Verb == "lock" && o.Bound == 0 {
		o.Bound = patience
	}
	return o
}

// granted waits for the answer to an attempt at a name. A *refusal is one that got no lock.
func (w *Worker) granted(name string, ch <-chan report) (WorkerLock, error) {
	r, err := w.answer(w.play.ctx, ch)
	if err != nil {
		return WorkerLock{}, err
	}
	if r.Kind != kindGranted {
		return WorkerLock{}, &refusal{r, w.Name}
	}
	return WorkerLock{w, fencing.Token(r.Token), name, r.Name, r.Shared, r.Lock}, nil
}

// claimed claims the storage for a lock that was granted. A transaction has claimed
// it already.
func (w *Worker) claimed(l WorkerLock, err error) (WorkerLock, error) {
	if err == nil && !w.play.transactional() {
		w.play.History.claim(Write{Worker: w.Name, Name: l.name, Token: l.Token, Shared: l.shared})
	}
	return l, err
}
