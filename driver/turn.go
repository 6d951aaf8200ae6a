package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

const (
	// sharing is for how long after the arrival of a grant the goroutines of a
	// process pass its lease on to each other, while other processes wait.
	sharing = 25 * time.Millisecond
	// releaseTime bounds what Unlock waits for the store, and what Close does.
	releaseTime = 2 * time.Second
)

// lease is what the store has granted to this process. What may change is guarded
// by the Locker's mutex.
type lease[H any] struct {
	locker   *Locker[H]
	line     *line[H]
	h        H
	req      *locker.Request // of whoever asked for it
	grant    Grant
	received locker.Instant // when the grant came
	hub      *session[H]    // that it hangs on, or nil
	session  *session[H]    // that it is, or nil

	turn     *turn[H]       // the latest
	uses     int            // turns, renewals and clean-ups that may yet call the store
	cleaning atomic.Int32   // clean-ups that were asked for, and have not ended
	turns    uint32         // that have begun
	pinned   bool           // to the turn under way: see Pin
	over     bool           // given back, or lost
	since    locker.Instant // of the last renewal that is known to have worked
	deadline locker.Instant // when belief ends, or never
	due      locker.Instant // when it is looked at again, or never
	index    int            // among the Locker's leases, -1 outside
	renewing bool           // a renewal by the Locker is under way
	lastErr  error          // of the last renewal
}

// turn is one goroutine's time with its process's lease. It is what a Lock holds.
type turn[H any] struct {
	lease  *lease[H]
	name   string
	token  fencing.Token
	maxEnd locker.Instant // the end of WithMaxHold, or never

	// What follows is guarded by the Locker's mutex.
	err      error            // nil while held, then a *LostError
	unlocked locker.LostError // err after an Unlock: the usual end takes no memory of its own
	lost     chan struct{}
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

var _ locker.Held = (*turn[int])(nil)

// grant makes a lease of what c was granted, and returns its first turn, or an error if
// it has less validity than is wanted.
func (l *Locker[H]) grant(c *call[H], g Grant, received locker.Instant) (*turn[H], error) {
	a := &lease[H]{locker: l, line: c.line, h: c.h, req: c.req, grant: g, received: received, uses: 1, index: -1}
	a.hub = l.hubOf(g)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := a.next(c.req, g.Since)
	a.extend(g.Since)
	if err := a.check(l.now()); err != nil {
		return nil, err
	}
	a.line.lease = a
	l.begin(a)
	if a.hub != nil {
		a.hub.take(a)
	}
	if c.lost != nil {
		l.lose(a, c.lost.Reason, c.lost.Cause)
	}
	if !a.over {
		a.line.tell()
	}
	return t, nil
}

// next makes the next turn of a lease, which counts from since.
func (a *lease[H]) next(req *locker.Request, since locker.Instant) *turn[H] {
	t := &turn[H]{lease: a, name: req.Name, token: fencing.Token(a.grant.First + uint64(a.turns))}
	if req.MaxHold > 0 {
		t.maxEnd = since.Add(req.MaxHold)
	}
	a.turn = t
	a.turns++
	return t
}

// begin watches over a turn that was made. The Locker's mutex is held.
func (l *Locker[H]) begin(a *lease[H]) {
	l.leases.plan(a, a.since.Add(a.interval()))
	l.arm()
}

// check returns an error if the turn under way has less validity left than is wanted.
func (a *lease[H]) check(now locker.Instant) error {
	left := a.left(now)
	if left > 0 && left >= a.req.MinValidity {
		return nil
	}
	return fmt.Errorf("%w: it took so long to answer that %v of the TTL of %v are left, at least %v are wanted",
		locker.ErrUnavailable, max(left, 0).Round(time.Millisecond), a.req.TTL, max(a.req.MinValidity, time.Millisecond))
}

// pass begins the turn of the next goroutine in line, if it wants what the lease is
// and there is enough of it. The Locker's mutex is held.
func (l *Locker[H]) pass(a *lease[H]) bool {
	e := a.line.behind.Front()
	if e == nil {
		return false
	}
	c, now := e.Value.(*call[H]), l.now()
	alike := c.req.TTL == a.req.TTL && c.req.Renew == a.req.Renew && c.req.Holder == a.req.Holder
	switch {
	case !alike, c.req.Alone, a.req.Alone, a.pinned, a.turns == a.grant.Count, now.Sub(a.received) >= sharing:
		return false
	case a.left(now) < max(c.req.MinValidity, 1):
		return false
	}
	a.line.behind.Remove(e)
	a.line.front = c
	c.decide(a.next(c.req, now), nil)
	l.begin(a)
	return true
}

// Unlock implements [locker.Held].
func (t *turn[H]) Unlock(ctx context.Context) error {
	a := t.lease
	l := a.locker
	if passed, err := l.end(t); passed || err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned { // a hook of the caller's has panicked
			l.cleanUp(a)
		}
		l.leave(a.line)
	}()
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	err := l.store.Release(ctx, a.h, 0)
	returned = true
	var lost *locker.LostError
	switch {
	case err == nil:
	case errors.As(err, &lost):
		err = &locker.LostError{Name: t.name, Reason: lost.Reason, Cause: lost.Cause}
	default:
		l.cleanUp(a)
		return l.wrap("unlock", t.name, unavailable(err))
	}
	l.done(a)
	return err
}

// end ends a turn that is still held, and reports whether the next one has begun.
// Belief ends before the release is sent: once it is under way somebody else may
// hold the lock.
func (l *Locker[H]) end(t *turn[H]) (passed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.look(t); err != nil {
		return false, err
	}
	t.end(locker.Unlocked, nil)
	if l.pass(t.lease) {
		return true, nil
	}
	l.forget(t.lease)
	return false, nil
}

// forget ends a lease. Its line may still be waiting for its release. The Locker's
// mutex is held.
func (l *Locker[H]) forget(a *lease[H]) {
	a.over = true
	if a.line != nil {
		a.line.lease = nil
	}
	if a.hub != nil {
		delete(a.hub.held, a)
	}
	l.leases.remove(a)
}

// end makes the turn no longer held, for good. The Locker's mutex is held.
func (t *turn[H]) end(reason locker.Reason, cause error) {
	lost := &t.unlocked
	if reason != locker.Unlocked {
		lost = new(locker.LostError) // who keeps the error of a loss does not keep the lock
	}
	*lost = locker.LostError{Name: t.name, Reason: reason, Cause: cause}
	t.err = lost
	if t.lost != nil && reason != locker.Unlocked {
		close(t.lost)
	}
	if t.cancel != nil {
		t.cancel(t.err)
	}
}

// look returns the turn's error, after a look at the clock. The Locker's mutex is
// held.
func (l *Locker[H]) look(t *turn[H]) error {
	if now := l.now(); t.err == nil && t.lease.left(now) <= 0 {
		l.expire(t.lease, now)
	}
	return t.err
}

// Name implements [locker.Held].
func (t *turn[H]) Name() string { return t.name }

// Token implements [locker.Held].
func (t *turn[H]) Token() fencing.Token { return t.token }

// Err implements [locker.Held].
func (t *turn[H]) Err() error {
	t.lease.locker.mu.Lock()
	defer t.lease.locker.mu.Unlock()
	return t.lease.locker.look(t)
}

// Lost implements [locker.Held].
func (t *turn[H]) Lost() <-chan struct{} {
	t.lease.locker.mu.Lock()
	defer t.lease.locker.mu.Unlock()
	if t.lost == nil {
		t.lost = make(chan struct{})
		if t.err != nil && t.unlocked.Reason != locker.Unlocked {
			close(t.lost)
		}
	}
	return t.lost
}

// Context implements [locker.Held].
func (t *turn[H]) Context() context.Context {
	t.lease.locker.mu.Lock()
	defer t.lease.locker.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancelCause(context.Background())
		if t.err != nil {
			t.cancel(t.err)
		}
	}
	return t.ctx
}

// Deadline implements [locker.Held].
func (t *turn[H]) Deadline() time.Time {
	l := t.lease.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now() // first: a stall between the two readings makes the deadline earlier
	left := t.lease.left(l.now())
	if left == forever {
		return time.Time{}
	}
	return now.Add(left)
}

// Renew implements [locker.Held].
func (t *turn[H]) Renew(ctx context.Context) error { return t.lease.locker.renewNow(ctx, t) }

// Pin returns the attempt that a lock of this Locker's was granted for, and keeps its
// lease from being passed on when it is unlocked. It is for backends that show the
// place of a lock in the store, as a condition of other requests: nobody else's turn
// may meet that. It reports false if the lock is not held, or not by this Locker.
func (l *Locker[H]) Pin(lock *locker.Lock) (h H, ok bool) {
	t, mine := locker.HeldOf(lock).(*turn[H])
	if !mine || t.lease.locker != l {
		return h, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look(t) != nil {
		return h, false
	}
	t.lease.pinned = true
	return t.lease.h, true
}

// LeaseOf returns a number that the turns of one lease have in common, and no other
// lock of the name has: its first token. For a lock that is not of this package, and
// does not know its lease, it is the lock's own token.
func LeaseOf(lock *locker.Lock) fencing.Token {
	if t, ok := locker.HeldOf(lock).(interface{ Lease() fencing.Token }); ok {
		return t.Lease()
	}
	return lock.Token()
}

// Lease returns the first token of the turn's lease.
func (t *turn[H]) Lease() fencing.Token { return fencing.Token(t.lease.grant.First) }
