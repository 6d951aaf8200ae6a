package matrix

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// lockName is what everybody in a scenario wants.
const lockName = "account"

// Play is one scenario on one subject, while it goes on. Its steps keep the
// history. A step that fails ends the scenario: see [Play.must].
type Play struct {
	System  *System
	History *History
	TTL     time.Duration
	Waited  time.Duration // until the next lock after the fault

	ctx        context.Context
	lab        *Lab
	guarantees locker.Guarantees
	name       string

	asking sync.WaitGroup // locks that somebody waits for

	mu   sync.Mutex
	crew []*Worker
}

// stop carries the error of a step out of a scenario.
type stop struct{ error }

// must ends the scenario if a step did not work. The steps of a scenario would
// otherwise be one line of action and three of error handling each.
func (p *Play) must(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// step runs f and returns the error of the step in it that did not work.
func (p *Play) step(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case stop:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// Worker starts one more process.
func (p *Play) Worker(name string) *Worker {
	w, err := p.start(p.ctx, name)
	p.must(err)
	return w
}

// silence is how long to wait for the lock of a holder that is silent. One with a
// lease or a session loses it. With a connection that depends on the server's
// settings. The process's own never ends.
func (p *Play) silence() time.Duration {
	switch p.guarantees.Release {
	case locker.ByExpiry, locker.BySession:
		return patience
	case locker.ByConnection, locker.ByTransaction:
		return p.long()
	}
	return 2 * p.TTL
}

// Break is a fault: a step on the world, noted in the history.
func (p *Play) Break(what string, f func() error) {
	p.History.fault("%s", what)
	p.do(what, f)
}

// Arrange is a step on the world that goes before the fault and breaks nothing
// that a lock leans on.
func (p *Play) Arrange(what string, f func() error) {
	p.History.mark("%s", what)
	p.do(what, f)
}

func (p *Play) do(what string, f func() error) {
	if err := f(); err != nil {
		p.must(fmt.Errorf("%s: %w", what, err))
	}
}

// Grant is a lock that a worker got.
type Grant struct {
	Worker *Worker
	Token  fencing.Token
}

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

// standstill is a store that grants nothing for as long as patience lasts. That
// is a result.
type standstill struct{ error }

func (s *standstill) Unwrap() error { return s.error }

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

// Next has a worker lock after a fault and notes how long it took.
func (w *Worker) Next() Grant {
	begin := locker.Now()
	g := w.Lock()
	w.play.Waited = locker.Now().Sub(begin)
	return g
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
func (g Grant) Renew() {
	w := g.Worker
	r, err := w.answer(w.play.ctx, w.tell(order{Verb: "renew", Name: w.play.name, Bound: patience}))
	w.play.must(err)
	if r.Err != "" {
		w.play.must(errors.New(r.Err))
	}
}

// renewing has the holder renew the lock, and waits for no answer.
func (g Grant) renewing() {
	w := g.Worker
	w.tell(order{Verb: "renew", Name: w.play.name, Bound: patience})
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

// Sleep lets time pass: the fault of some scenarios is time.
func (p *Play) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
		p.must(context.Cause(p.ctx))
	}
}

// end ends all workers.
func (p *Play) end() {
	p.mu.Lock()
	crew := p.crew
	p.mu.Unlock()
	for _, w := range crew {
		w.end()
	}
	p.asking.Wait() // their workers are gone
}
