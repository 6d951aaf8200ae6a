package matrix

import (
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// Lock has the worker wait for the lock, and claims the storage for it, as Do
// does with a guard.
func (w *worker) Lock() workerLock {
	return w.Locking().Wait()
}

// LockPlain is Lock for a holder that claims nothing and does not renew.
func (w *worker) LockPlain() workerLock {
	l, err := w.ask(order{Verb: "lock", NoRenew: true})
	w.play.must(err)
	return l
}

// Next is Lock for the first lock after a fault: it notes how long that took.
func (w *worker) Next() workerLock {
	begin := driver.Now()
	l := w.Lock()
	w.play.Waited = driver.Now().Sub(begin)
	return l
}

// Try makes one attempt within bound.
func (w *worker) Try(bound time.Duration) (workerLock, error) {
	return w.claimed(w.ask(order{Verb: "try", Bound: bound}))
}

func (w *worker) ask(o order) (workerLock, error) {
	o = w.fill(o)
	return w.granted(o.Name, w.tell(o))
}

func (w *worker) fill(o order) order {
	o.Name = w.play.name
	if o.Kind = w.play.kind(w.Name); o.Kind == locker.KindSlots {
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
func (w *worker) granted(name string, ch <-chan report) (workerLock, error) {
	r, err := w.answer(w.play.ctx, ch)
	if err != nil {
		return workerLock{}, err
	}
	if r.Kind != kindGranted {
		return workerLock{}, &refusal{r, w.Name}
	}
	return workerLock{w, fencing.Token(r.Token), name, r.Name, r.Shared, r.Lock}, nil
}

// claimed claims the storage for a lock that was granted. A transaction has claimed
// it already.
func (w *worker) claimed(l workerLock, err error) (workerLock, error) {
	if err == nil && !w.play.transactional() {
		w.play.History.Claim(history.Write{Worker: w.Name, Name: l.name, Token: l.Token, Shared: l.shared})
	}
	return l, err
}
