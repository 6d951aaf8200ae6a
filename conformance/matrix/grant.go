package matrix

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Grant is a lock that a worker got.
type Grant struct {
	Worker *Worker
	Token  fencing.Token
}

// Write has the holder look at its lock and write. It reports whether the holder
// still believed.
func (g Grant) Write(value int) bool {
	p := g.Worker.play
	// A write inside a transaction needs the network, which may be silent.
	r, err := g.Worker.answer(p.ctx, g.Worker.tell(order{Verb: "write", Name: p.name, Value: value, Bound: p.TTL}))
	p.must(err)
	if p.inside() && r.Err != "" {
		p.History.mark("%s's write fails: %s", g.Worker.Name, r.Err)
	}
	return r.Err == ""
}

// LookThenSleepThenWrite stops the holder between its look and its write. What
// it returns lets it go on, and returns when the write has been made.
func (g Grant) LookThenSleepThenWrite(value int) (wake func()) {
	w := g.Worker
	w.play.History.fault("%s looks: it holds the lock. It is stopped before it writes", w.Name)
	ch := w.tell(order{Verb: "write", Name: w.play.name, Value: value, Stop: true})
	w.play.must(w.awaitStopped())
	return func() {
		w.play.must(w.Wake())
		_, err := w.answer(w.play.ctx, ch)
		w.play.must(err)
	}
}

// WriteDelayed has the holder write, and the network keep the write until deliver
// is called.
func (g Grant) WriteDelayed(value int) (deliver func()) {
	w := g.Worker
	w.play.History.fault("%s writes; the network delays it", w.Name)
	if w.play.inside() {
		return g.writeInside(value)
	}
	delay := &delay{sent: make(chan struct{}), delivered: make(chan struct{})}
	w.mu.Lock()
	w.delay = delay
	w.mu.Unlock()
	ch := w.tell(order{Verb: "write", Name: w.play.name, Value: value})
	select {
	case <-delay.sent:
	case <-ch:
		w.play.must(fmt.Errorf("%s no longer held the lock when it was to write: nothing could be delayed", w.Name))
	case <-w.gone:
		w.play.must(fmt.Errorf("worker %s: %w", w.Name, errGone))
	case <-w.play.ctx.Done():
		w.play.must(context.Cause(w.play.ctx))
	}
	return func() {
		w.play.History.mark("%s's write is delivered", w.Name)
		close(delay.delivered)
		_, err := w.answer(w.play.ctx, ch)
		w.play.must(err)
	}
}

// Renew has the holder renew once by hand, so that what is done for the first
// time is done: later renewals are one request each.
func (g Grant) Renew() { g.Worker.play.must(g.tryRenew()) }

// tryRenew is Renew for a lock that may have ended.
func (g Grant) tryRenew() error {
	w := g.Worker
	r, err := w.answer(w.play.ctx, w.tell(order{Verb: "renew", Name: w.play.name, Bound: patience}))
	w.play.must(err)
	if r.Err != "" {
		return errors.New(r.Err)
	}
	return nil
}

// renewing has the holder renew the lock, and does not wait for the answer.
func (g Grant) renewing() <-chan report {
	w := g.Worker
	return w.tell(order{Verb: "renew", Name: w.play.name, Bound: patience})
}

// Unlock has the holder give the lock back.
func (g Grant) Unlock() {
	r, err := g.Worker.answer(g.Worker.play.ctx, g.free())
	g.Worker.play.must(err)
	if r.Err != "" {
		g.Worker.play.History.mark("%s: %s", g.Worker.Name, r.Err)
		return
	}
	g.Worker.play.History.freed(g.Worker.Name, g.Token)
}

// free starts an Unlock. Belief ends here: an Unlock that fails does not bring it
// back.
func (g Grant) free() <-chan report {
	g.Worker.play.History.ended(g.Worker.Name, g.Token, locker.Now(), "unlocked")
	return g.Worker.tell(order{Verb: "unlock", Name: g.Worker.play.name})
}

// AwaitLoss waits until the holder has been told that it lost the lock.
func (g Grant) AwaitLoss() {
	w := g.Worker
	w.mu.Lock()
	lost := w.lossOf(g.Token)
	w.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-lost:
	case <-timer.C:
		w.play.must(fmt.Errorf("%s was not told for %v that it lost the lock", w.Name, patience))
	case <-w.play.ctx.Done():
		w.play.must(context.Cause(w.play.ctx))
	}
}
