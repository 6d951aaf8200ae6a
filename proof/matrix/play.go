package matrix

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

const lockName = "account"

// play is one scenario on one subject, while it goes on. Its steps write the history. A
// step that fails ends the scenario, and the verdict is [NotPlayed].
type play struct {
	System  *System
	History *history.History
	TTL     time.Duration
	Waited  time.Duration // until the next lock after the fault

	ctx        context.Context
	lab        *Lab
	guarantees locker.Guarantees
	scenario   Scenario
	name       string
	names      []string // of all locks that it is about: name, unless it draws them

	// reached is asked before a worker starts: its error ends the scenario. It may be nil.
	reached func() error

	asking sync.WaitGroup // locks that somebody waits for

	mu      sync.Mutex
	workers []*worker
}

// must ends the scenario if a step did not work. The steps of a scenario would
// otherwise be one line of action and three of error handling each.
func (p *play) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Worker starts one more process.
func (p *play) Worker(name string) *worker {
	w, err := p.start(p.ctx, name)
	p.must(err)
	return w
}

// reach ends the play if the worker cannot reach the store. A store that answers has been reached, whatever it
// says: the scenarios find what is wrong with it.
func (w *worker) reach() {
	first := <-w.Locking().end
	var still *standstill
	var no *refusal
	switch {
	case errors.As(first.err, &still) && errors.As(first.err, &no):
		if no.NoStore && !no.Taken {
			w.play.notPlayed("nobody could lock for %v before anything was broken: %s", patience, no.Err)
		}
	case first.err != nil:
		w.play.must(first.err)
	default:
		first.lock.Unlock()
		w.play.must(w.play.readRegister()) // which removes what the worker has left there
	}
}

// silence is how long to wait for the lock of a holder that is silent. A lease or a
// session ends. Whether a connection ends depends on the server's settings. A lock of
// the process itself does not end.
func (p *play) silence() time.Duration {
	switch p.guarantees.FreedBy {
	case locker.FreedByExpiry, locker.FreedBySession:
		return patience
	case locker.FreedByConnection, locker.FreedByTransaction:
		return p.long()
	}
	return 2 * p.TTL
}

// Break injects a fault, and notes it in the history.
func (p *play) Break(what string, f func() error) {
	p.History.Fault("%s", what)
	p.do(what, f)
}

// Arrange prepares a fault and breaks nothing that a lock assumes. It is noted in the
// history.
func (p *play) Arrange(what string, f func() error) {
	p.History.Mark("%s", what)
	p.do(what, f)
}

// notPlayed ends a scenario whose story does not take place: nothing may be called kept
// that was not tested.
func (p *play) notPlayed(format string, args ...any) { p.must(fmt.Errorf(format, args...)) }

func (p *play) do(what string, f func() error) {
	if err := f(); err != nil {
		p.must(fmt.Errorf("%s: %w", what, err))
	}
}

// Sleep lets time pass.
func (p *play) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
		p.must(context.Cause(p.ctx))
	}
}

// end ends all workers.
func (p *play) end() {
	p.mu.Lock()
	workers := p.workers
	p.mu.Unlock()
	for _, w := range workers {
		w.end()
	}
	p.asking.Wait() // their workers are gone
}
