package matrix

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// workerLock is a lock that a worker got. It may have ended since.
type workerLock struct {
	Worker *worker
	Token  fencing.Token // or the number of a shared lock

	lock   string // its name
	name   string // of what it protects: the lock's, or the slot's
	shared bool
	id     int // of the order that got it
}

// tell gives the holder an order about the lock.
func (l workerLock) tell(o order) <-chan report {
	o.Name, o.Lock = l.lock, l.id
	return l.Worker.tell(o)
}

// Write has the holder look at its lock and then write. It reports whether the holder
// still believed that it had the lock.
func (l workerLock) Write(value int) bool {
	p := l.Worker.play
	// A write in a transaction needs the network, which may be silent.
	r, err := l.Worker.answer(p.ctx, l.tell(order{Verb: "write", Value: value, Bound: p.TTL}))
	p.must(err)
	if p.transactional() && r.Err != "" {
		p.History.Mark("%s's write fails: %s", l.Worker.Name, r.Err)
	}
	return r.Err == ""
}

// LookThenSleepThenWrite stops the holder between its look and its write. The function
// that it returns lets the holder go on, and returns when the write has been made.
func (l workerLock) LookThenSleepThenWrite(value int) (wake func()) {
	w := l.Worker
	w.play.History.Fault("%s looks: it holds the lock. It is stopped before it %ss", w.Name, history.Write{Shared: l.shared}.Verb())
	goOn := l.midway(order{Verb: "write", Value: value})
	return func() { goOn() }
}

var errNotHeld = errors.New("it no longer held the lock when it was to be stopped before a write")

// midway has the holder stop itself while it obeys, and waits until it has.
func (l workerLock) midway(o order) (wake func() report) {
	w := l.Worker
	o.Stop = true
	ch := l.tell(o)
	w.play.must(w.awaitStopped(ch))
	w.play.History.Paused(w.Name, true)
	return func() report {
		w.play.must(w.Wake())
		r, err := w.answer(w.play.ctx, ch)
		w.play.must(err)
		return r
	}
}

// WriteDelayed has the holder write. The network keeps the write until deliver is
// called.
func (l workerLock) WriteDelayed(value int) (deliver func()) {
	w := l.Worker
	w.play.History.Fault("%s writes; the network delays it", w.Name)
	if w.play.transactional() {
		return l.writeLateInTransaction(value)
	}
	delay := &delay{sent: make(chan struct{}), delivered: make(chan struct{})}
	w.mu.Lock()
	w.delay = delay
	w.mu.Unlock()
	ch := l.tell(order{Verb: "write", Value: value})
	select {
	case <-delay.sent:
	case <-ch:
		w.play.notPlayed("%s no longer held the lock when it was to write: there was no write to delay", w.Name)
	case <-w.gone:
		w.play.must(fmt.Errorf("worker %s: %w", w.Name, errGone))
	case <-w.play.ctx.Done():
		w.play.must(context.Cause(w.play.ctx))
	}
	return func() {
		w.play.History.Mark("%s's write is delivered", w.Name)
		close(delay.delivered)
		_, err := w.answer(w.play.ctx, ch)
		w.play.must(err)
	}
}

// Renew has the holder renew once by hand, so that later renewals are one request
// each: some clients send more for the first.
func (l workerLock) Renew() { l.Worker.play.must(l.tryRenew()) }

// tryRenew is Renew for a lock that may have ended.
func (l workerLock) tryRenew() error {
	if r := l.renewed(); r.Err != "" {
		return errors.New(r.Err)
	}
	return nil
}

func (l workerLock) renewed() report {
	r, err := l.Worker.answer(l.Worker.play.ctx, l.renewing())
	l.Worker.play.must(err)
	return r
}

// mustRenew renews a lock of which nothing is broken that it assumes. The store may be
// slow for a moment, so it asks until the lease has ended; but a lock that is lost is a
// promise that was not kept. It reports whether the lock is held.
func (l workerLock) mustRenew() bool {
	p := l.Worker.play
	for ; ; p.Sleep(p.TTL / 100) {
		switch r := l.renewed(); {
		case r.Err == "":
			return true
		case r.Lost:
			p.History.NoteUntrue("%s lost its lock though nothing that it assumes is broken: %s", l.Worker.Name, r.Err)
			return false
		}
	}
}

// renewing has the holder renew the lock, and does not wait for the answer.
func (l workerLock) renewing() <-chan report {
	return l.tell(order{Verb: "renew", Bound: patience})
}

// Unlock has the holder unlock, and reports whether that worked. An error is noted in the
// history and does not end the scenario.
func (l workerLock) Unlock() bool { return l.unlockIn(0) }

// unlockIn is Unlock in a context that ends after that time; 0: it does not.
func (l workerLock) unlockIn(bound time.Duration) bool {
	p := l.Worker.play
	r, err := l.Worker.answer(p.ctx, l.unlockingIn(bound))
	p.must(err)
	if r.Err != "" {
		p.History.Mark("%s: %s", l.Worker.Name, r.Err)
		return false
	}
	p.History.Unlocked(l.Worker.Name, l.id)
	return true
}

// unlocking has the holder unlock, and does not wait for the answer. The holder stops
// believing now: an Unlock that fails does not make it believe again.
func (l workerLock) unlocking() <-chan report { return l.unlockingIn(0) }

func (l workerLock) unlockingIn(bound time.Duration) <-chan report {
	l.Worker.play.History.Ceased(l.Worker.Name, l.id, driver.Now(), "unlocked")
	return l.tell(order{Verb: "unlock", Bound: bound})
}

// AwaitLoss waits until the holder has heard that it lost the lock.
func (l workerLock) AwaitLoss() {
	w := l.Worker
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.lossOf(l.Token):
	case <-timer.C:
		w.play.must(fmt.Errorf("%s did not hear for %v that it lost the lock", w.Name, patience))
	case <-w.play.ctx.Done():
		w.play.must(context.Cause(w.play.ctx))
	}
}
