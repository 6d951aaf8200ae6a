package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// A clause that says by when something must happen measures the machine, too. Where it
// misses that time by no more than the machine stood still for meanwhile, the clause goes on,
// for everything else must hold all the same, and is played again, once, alone, with no
// excuse. Only what calls [trial.excused] bounds a time in this way. What fails otherwise fails
// at once: exclusion, the order of tokens, what is left behind, and which error a call returns
// are right or wrong on any machine.

// replays is how many clauses of one process may be played again.
const replays = 3

// patience with the ticker, which answers within some milliseconds unless the machine, or
// somebody with a signal, stops it.
const tickerPatience = 10 * time.Second

// meter knows for how long the machine stood still, and how many clauses may be played again.
// The zero meter knows of no stall.
type meter struct {
	factor int    // of leases
	off    bool   // no clause is played again
	ask    func() // has the ticker say until when it has said everything; nil if there is none

	mu     sync.Mutex
	stalls []stall
	upto   time.Time // everything until then was noted
	ended  bool      // the ticker has ended: nothing more will be noted
	left   int       // so many clauses may still be played again
}

// stall is a time in which the machine stood still. It began at this time of the wall clock.
type stall struct {
	begun time.Time
	lasts time.Duration
}

// note notes what the ticker has said.
func (m *meter) note(s stall, upto bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if upto {
		m.upto = s.begun
		return
	}
	m.stalls = append(m.stalls, s)
}

func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
}

// hear waits until the ticker has said everything until a time, and not for ever.
func (m *meter) hear(until time.Time) {
	if m.ask == nil {
		return
	}
	m.ask()
	happens(tickerPatience, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.ended || !m.upto.Before(until)
	})
}

// sum returns for how long the machine stood still between two times.
func (m *meter) sum(from, to time.Time) (sum time.Duration) {
	m.hear(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stalls {
		begun, end := s.begun, s.begun.Add(s.lasts)
		if begun.Before(from) {
			begun = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(0, end.Sub(begun))
	}
	return min(sum, max(0, to.Sub(from))) // a wall clock that is set back shows a time twice
}

// excuse is sum, where clauses may be played again.
func (m *meter) excuse(from, to time.Time) time.Duration {
	if m.off {
		return 0
	}
	return m.sum(from, to)
}

// take takes a replay, if one is left.
func (m *meter) take() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left--
	return m.left >= 0
}

// miss is a time that was missed by no more than the machine stood still for.
type miss struct {
	what             string
	bound, by, stood time.Duration
}

func (m miss) String() string {
	return fmt.Sprintf("missed %v by %v, the machine stood still for %v of it", m.bound, round(m.by), round(m.stood))
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// excused reports whether what had to happen within bound of a time was late by no more than
// the machine stood still for until another, and notes that it was. It has the clause played
// again.
func (x *trial) excused(what string, bound, by time.Duration, from, to time.Time) bool {
	stood := x.h.meter.excuse(from, to)
	if by > stood {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.misses = append(x.misses, miss{what, bound, by, stood})
	return true
}

// inTime requires that what began at a time took no longer than bound.
func (x *trial) inTime(began time.Time, took, bound time.Duration, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if took > bound && !x.excused(what, bound, took-bound, began, began.Add(took)) {
		x.failf("%s: it took %v, and no more than %v is right", what, round(took), bound)
	}
}

// more returns for how long to go on waiting for what has not come within bound, to learn by
// how much it is late. It is 0 if it is late by more than the machine stood still for.
func (x *trial) more(began time.Time, bound time.Duration) time.Duration {
	now := time.Now()
	return max(0, min(x.h.meter.excuse(began, now), bound)-(now.Sub(began)-bound))
}

// comes requires that something happens within bound. wait waits for so long at most, and
// reports whether it has happened.
func (x *trial) comes(bound time.Duration, what string, wait func(time.Duration) bool) {
	began := time.Now()
	if wait(bound) {
		return
	}
	for more := x.more(began, bound); more > 0; more = x.more(began, bound) {
		if wait(more) {
			x.inTime(began, time.Since(began), bound, "%s", what)
			return
		}
	}
	x.failf("it did not happen in %v that %s", bound, what)
}

// receive returns what must come within bound.
func receive[T any](x *trial, bound time.Duration, from <-chan T, what string) (got T) {
	x.comes(bound, what, func(most time.Duration) bool {
		select {
		case got = <-from:
			return true
		case <-time.After(most):
			return false
		}
	})
	return got
}

// patience is the context of a call that must succeed within its bound. If mustCome was
// called for it, it lasts longer by as much as the machine stood still.
type patience struct {
	context.Context
	x      *trial
	began  time.Time
	bound  time.Duration
	lasts  atomic.Bool // mustCome was called
	done   chan struct{}
	cancel context.CancelCauseFunc
}

// patientFor returns a context that lasts for d and as long as an event may take.
func (x *trial) patientFor(d time.Duration) context.Context {
	p := &patience{x: x, began: time.Now(), bound: x.h.patience + d, done: make(chan struct{})}
	p.Context, p.cancel = context.WithCancelCause(x.ctx)
	context.AfterFunc(p.Context, func() { close(p.done) })
	time.AfterFunc(p.bound, p.over)
	return p
}

func (p *patience) over() {
	if p.Context.Err() == nil && p.lasts.Load() {
		if more := p.x.more(p.began, p.bound); more > 0 {
			time.AfterFunc(more, p.over)
			return
		}
	}
	p.cancel(context.DeadlineExceeded)
}

// Deadline implements [context.Context]. Nothing that was cut off at the bound could be seen
// to come late.
func (p *patience) Deadline() (time.Time, bool) {
	if p.lasts.Load() {
		return p.began.Add(2 * p.bound), true
	}
	return p.began.Add(p.bound), true
}

// Err implements [context.Context].
func (p *patience) Err() error {
	if p.Context.Err() == nil {
		return nil
	}
	return context.Cause(p.Context)
}

// Done implements [context.Context]. It is not the channel of the context below: what is made
// of p would take its error from there, and that is never that a deadline has passed.
func (p *patience) Done() <-chan struct{} { return p.done }

// AfterFunc spares what is made of p a goroutine: package context asks for it.
func (p *patience) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(p.Context, f) }

// mustCome returns ctx for a call that came is called for when it has succeeded.
func mustCome(ctx context.Context) context.Context {
	if p, ok := ctx.(*patience); ok {
		p.lasts.Store(true)
	}
	return ctx
}

// came requires that a call succeeded before the bound of its context.
func (x *trial) came(ctx context.Context, at time.Time, what string) {
	if p, ok := ctx.(*patience); ok {
		x.inTime(p.began, at.Sub(p.began), p.bound, "%s", what)
	}
}

// hold is when a lock came, and what was asked for.
type hold struct {
	came time.Time
	req  *driver.Request
}

func (x *trial) noteHold(lock *locker.Lock, opts []locker.Option) {
	if req, err := driver.NewRequest(nil, lock.Name(), opts...); err == nil {
		x.holds.Store(lock, hold{time.Now(), req})
	}
}

// ended reports whether err says that a lock has ended by its holder's own clock because the
// machine held up the suite, which came too late: at this time. If the lock is renewed, the
// machine must have held up the renewal. The first is due when a third of the lease has
// passed, or earlier or later, so it must have stood still for all the rest.
func (x *trial) ended(lock *locker.Lock, at time.Time, err error) bool {
	var lost *locker.LostError
	known, ok := x.holds.Load(lock)
	if !ok || lock.Deadline().IsZero() || !errors.As(err, &lost) || !slices.Contains(byClock, lost.Reason) {
		return false
	}
	held, end := known.(hold), lock.Deadline()
	if ttl := held.req.TTL; held.req.Renew && lost.Reason != locker.ReasonMaxHold {
		return x.excused("a lock is renewed", ttl/3, ttl*2/3, end.Add(-ttl), end)
	}
	return at.After(end) && x.excused("a lock is unlocked before it ends", end.Sub(held.came), at.Sub(end), held.came, at)
}

// unlockTime is for how long an Unlock waits for the store.
const unlockTime = 2 * time.Second

// unanswered reports whether err says that the store did not answer an Unlock in time, which
// began then, because the machine stood still. What it has left must be free all the same.
func (x *trial) unanswered(began time.Time, err error) bool {
	took := time.Since(began)
	return tooSlow(err) && took > unlockTime && x.excused("an Unlock is answered", unlockTime, took-unlockTime, began, began.Add(took))
}

// byClock are the reasons of a loss that nobody else has caused.
var byClock = []locker.Reason{locker.ReasonExpired, locker.ReasonUnreachable, locker.ReasonMaxHold}

// scaled returns the lease of clauses on a machine that is so many times as slow. Slowness is
// no reason to make a long lease longer.
func scaled(ttl time.Duration, factor int) time.Duration {
	if ttl == 0 {
		ttl = time.Second
	}
	return max(ttl, min(time.Duration(factor)*ttl, 4*time.Second))
}

// playing is held by every clause that is being played, and alone by one that is played again.
var playing sync.RWMutex

// again plays a clause again that missed times because the machine stood still.
func (c Clause) again(t testing.TB, h Harness, misses []miss) error {
	t.Helper()
	worst := slices.MaxFunc(misses, func(a, b miss) int { return cmp.Compare(a.by, b.by) })
	if !h.meter.take() {
		return fmt.Errorf("%s: %v, and it is not played again: no more than %d clauses of a process are", worst.what, worst, replays)
	}
	text := fmt.Sprintf("stalled: %s clause %q %v; played again", program(), c.Name, worst)
	t.Logf("%s (%s)", text, worst.what)
	aloud(text)
	playing.Lock()
	defer playing.Unlock()
	h.meter = new(meter) // which has no excuse
	if _, err := c.play(t, h); err != nil {
		return fmt.Errorf("%w (played again, after it had %v)", err, worst)
	}
	return nil
}
