package matrix

import (
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Lock has the worker wait for the lock, and claims the storage for it, as Do
// does with a guard.
func (w *Worker) Lock() Grant {
	return w.Locking().Wait()
}

// LockPlain is Lock for a holder that claims nothing and does not renew.
func (w *Worker) LockPlain() Grant {
	g, err := w.ask(order{Verb: "lock", NoRenew: true})
	w.play.must(err)
	return g
}

// Next has a worker lock after a fault and notes how long it took.
func (w *Worker) Next() Grant {
	begin := locker.Now()
	g := w.Lock()
	w.play.Waited = locker.Now().Sub(begin)
	return g
}

// Try makes one attempt within bound.
func (w *Worker) Try(bound time.Duration) (Grant, error) {
	return w.claimed(w.ask(order{Verb: "try", Bound: bound}))
}

func (w *Worker) ask(o order) (Grant, error) { return w.granted(w.tell(w.fill(o))) }

func (w *Worker) fill(o order) order {
	o.Name = w.play.name
	if o.TTL == 0 {
		o.TTL = w.play.TTL
	}
	if o.Verb == "lock" && o.Bound == 0 {
		o.Bound = patience
	}
	return o
}

// refusal is an attempt that got no lock.
type refusal struct {
	report
	who string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s got no lock: %s", r.who, r.Err) }

func (w *Worker) granted(ch <-chan report) (Grant, error) {
	r, err := w.answer(w.play.ctx, ch)
	if err != nil {
		return Grant{}, err
	}
	if r.Kind != kindGranted {
		return Grant{}, &refusal{r, w.Name}
	}
	return Grant{w, fencing.Token(r.Token)}, nil
}

func (w *Worker) claimed(g Grant, err error) (Grant, error) {
	if err == nil && !w.play.inside() { // which claims for itself
		w.play.History.claim(w.Name, w.play.name, g.Token)
	}
	return g, err
}
