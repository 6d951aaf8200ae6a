package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

const (
	// shareTime is how long after the arrival of a grant the goroutines of a process
	// pass its lease on to each other, while other processes wait.
	shareTime = 25 * time.Millisecond
	// releaseTime bounds how long Unlock waits for the store, and Close for clean-ups.
	releaseTime = 2 * time.Second
)

// lease is what the store has granted to this process. What may change is guarded
// by the Locker's mutex.
type lease[H any] struct {
	renewed[H]
	line     *line[H]
	h        H
	req      *request // of the call that asked for it
	grant    Grant
	received Instant // when the grant arrived

	turn   *turn[H]              // the latest, of a shared lease the first
	joined map[*turn[H]]struct{} // of a shared lease: others that are under way
	ended  *request              // of the turn that ended last
	begun  uint32                // how many turns
	pinned bool                  // to the turn under way: see Pin

	resumed bool // by a handle: it stands beside its line, where somebody may wait for it
}

// turn is one goroutine's time with its process's lease. It is what a Lock holds.
type turn[H any] struct {
	lease  *lease[H]
	req    *request // of its call
	token  fencing.Token
	began  Instant // if it is observed
	maxEnd Instant // the end of WithMaxHold, or never
	minEnd Instant // the end of WithMinHold, or 0

	// What follows is guarded by the Locker's mutex.
	err      error             // nil while held, then a *LostError or an *Unlocked
	unlocked contract.Unlocked // err points here after an Unlock: the usual end allocates nothing
	detached bool              // and not given back
	ofSet    bool
	lost     chan struct{}
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

var _ contract.Held = (*turn[int])(nil)

// beginLease makes a lease of what c was granted, and returns its first turn, or an
// error if it has less validity than is wanted.
func (l *Locker[H]) beginLease(c *call[H], g Grant, received Instant) (*turn[H], error) {
	a := &lease[H]{line: c.line, h: c.h, req: c.req, grant: g, received: received, resumed: c.handle != nil}
	a.renewed = renewed[H]{locker: l, what: a, ttl: c.req.TTL, renews: c.req.Renew, session: l.sessionOf(c.req), uses: 1, index: -1, doubt: c.doubt}
	a.lasting = a.renews && (g.Lasting || a.session != nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := a.nextTurn(c.req, g.Since, received)
	a.extend(g.Since)
	if err := a.checkValidity(c.req, l.now()); err != nil {
		return nil, err
	}
	if a.resumed {
		a.line = l.lineOf(c.req.Name)
	}
	l.reportGrant(c, t, locker.EventGranted)
	if a.beside() {
		a.line.beside = append(a.line.beside, a)
	} else {
		a.line.lease, a.line.notYet = a, nil
	}
	l.watch(&a.renewed)
	if a.session != nil {
		a.session.add(a)
	}
	if c.lost != nil {
		l.lose(&a.renewed, c.lost.Reason, c.lost.Cause)
	}
	switch {
	case a.resumed: // whoever is in front has its own answer to wait for
	case a.beside():
		l.advance(a.line)
	default:
		l.tell(a.line)
	}
	return t, nil
}

// nextTurn makes the next turn of a lease, which begins between since and received. Its
// WithMaxHold counts from the former, its WithMinHold from the latter.
func (a *lease[H]) nextTurn(req *request, since, received Instant) *turn[H] {
	t := &turn[H]{lease: a, req: req, token: fencing.Token(a.grant.First + uint64(a.begun))}
	t.limit(req.MaxHold, req.MinHold, since, received)
	a.turn, a.limit = t, t.maxEnd
	a.begun++
	return t
}

// limit sets the ends of WithMaxHold and WithMinHold, where there are any.
func (t *turn[H]) limit(most, least time.Duration, since, received Instant) {
	if most > 0 {
		t.maxEnd = since.Add(most)
	}
	if least > 0 {
		t.minEnd = received.Add(least)
	}
}

// watch puts a lease with a new turn, or a session, into the schedule. The Locker's mutex is held.
func (l *Locker[H]) watch(r *renewed[H]) {
	l.schedule.plan(r, r.since.Add(r.interval()))
	l.arm()
}

// least is how much validity a lease must have left for req: also all of its WithMinHold,
// where nothing renews the lease and the store cannot keep it.
func (l *Locker[H]) least(req *request) time.Duration {
	least := max(req.MinValidity, 1)
	if req.Renew || req.MinHold == 0 || l.Guarantees().KeepsMinHold {
		return least
	}
	return max(least, req.MinHold)
}

// checkValidity returns an error if less validity is left than req wants.
func (a *lease[H]) checkValidity(req *request, now Instant) error {
	left, least := a.left(now), a.locker.least(req)
	if left >= least {
		return nil
	}
	return fmt.Errorf("%w: it took so long to answer that %v of the TTL of %v are left, at least %v are wanted",
		locker.ErrUnavailable, max(left, 0).Round(time.Millisecond), req.TTL, max(least, time.Millisecond))
}

// heir returns the next goroutine in line, if it wants the same of a lease and this one has
// enough left now, or nil. The Locker's mutex is held.
func (l *Locker[H]) heir(a *lease[H]) (c *call[H], now Instant) {
	e := a.line.behind.Front()
	if e == nil || a.beside() {
		return nil, 0
	}
	c, now = e.Value.(*call[H]), l.now()
	if !l.fits(a, c.req, now) || a.begun == a.grant.Count || now < a.turn.minEnd {
		return nil, 0
	}
	return c, now
}

// pass begins the turn of an heir. The Locker's mutex is held.
func (l *Locker[H]) pass(a *lease[H], c *call[H], now Instant) {
	a.line.front = c
	t := a.nextTurn(c.req, now, now)
	l.reportGrant(c, t, locker.EventPassed)
	c.decide(t, nil)
	l.watch(&a.renewed)
}

// Unlock implements [contract.Held].
func (t *turn[H]) Unlock(ctx context.Context) (err error) {
	a := t.lease
	l := a.locker
	if passed, err := l.endTurn(t); passed || err != nil {
		return err
	}
	err = errPanicked // if a hook of the client's does
	confirmed := false
	defer func() {
		if !confirmed {
			l.cleanUp(&a.renewed)
		}
		l.reportEnd(t, err)
		if !a.beside() {
			l.leaveFront(a.line)
		}
	}()
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	err = l.store.Release(ctx, a.h, l.keep(t))
	lost, ok := errors.AsType[*locker.LostError](err)
	if confirmed = ok || err == nil; !confirmed {
		return l.wrap("unlock", t.req.Name, unavailable(err))
	}
	if ok {
		err = &locker.LostError{Name: t.req.Name, Reason: lost.Reason, Cause: lost.Cause}
	}
	l.mu.Lock()
	a.doubt = doubt{}
	l.mu.Unlock()
	l.done(&a.renewed)
	return err
}

// endTurn ends a turn that is still held, and reports whether the next one has begun,
// others of a shared lease go on, or the lease stays for the rest of a WithMinHold.
// Belief ends before the release is sent: from then on somebody else may hold the lock.
func (l *Locker[H]) endTurn(t *turn[H]) (passed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch err := l.checkHeld(t); {
	case t.detached:
		return true, nil // somebody else may have it by now
	case err != nil:
		return false, err
	}
	t.unlocked.Name = t.req.Name
	t.end(&t.unlocked)
	heir, now := l.heir(t.lease)
	passed = t.lease.leave(t) || heir != nil || l.stay(t)
	if passed {
		l.reportEnd(t, nil)
	}
	switch {
	case heir != nil:
		l.pass(t.lease, heir, now)
	case !passed:
		l.end(&t.lease.renewed)
		t.lease.detach()
	}
	return passed, nil
}

// detach takes a lease that has ended out of its line, which may still wait for its release,
// and from its session. The Locker's mutex is held.
func (a *lease[H]) detach() {
	switch n := a.line; {
	case a.beside():
		n.beside = slices.DeleteFunc(n.beside, func(b *lease[H]) bool { return b == a })
		a.locker.forget(n)
	default:
		n.lease = nil
	}
	if a.session != nil {
		delete(a.session.held, a)
	}
}

// lose implements owner: all turns under way end, and the next in line asks.
func (a *lease[H]) lose(reason locker.Reason, cause error) {
	a.detach()
	for _, t := range a.heldTurns() {
		t.end(&locker.LostError{Name: t.req.Name, Reason: reason, Cause: cause})
		if t.lost != nil {
			close(t.lost)
		}
		a.locker.reportEnd(t, t.err)
	}
	a.joined = nil
	if !a.beside() {
		a.locker.advance(a.line)
	}
}

// turns implements owner. What depends on a session only looks whether it is still there: the
// session's renewals count.
func (a *lease[H]) turns() []*turn[H] {
	if a.session != nil {
		return nil
	}
	return a.heldTurns()
}

// finish implements owner.
func (a *lease[H]) finish() {
	l := a.locker
	l.mu.Lock()
	left := a.any()
	l.mu.Unlock()
	if !left {
		l.finish(a.h, a.req, 0, nil)
		return
	}
	l.finish(a.h, a.req, l.keep(a.turn), a.remove)
}

// end makes the turn no longer held, for good, because of why. The Locker's mutex is held.
func (t *turn[H]) end(why error) {
	t.err, t.lease.ended = why, t.req
	if t.cancel != nil {
		t.cancel(why)
	}
}

// checkHeld reads the clock, ends the turn if its validity has ended, and returns its
// error. The Locker's mutex is held.
func (l *Locker[H]) checkHeld(t *turn[H]) error {
	if t.err == nil {
		l.expire(&t.lease.renewed, l.now())
	}
	return t.err
}

// Name implements [contract.Held].
func (t *turn[H]) Name() string { return t.req.Name }

// Token implements [contract.Held].
func (t *turn[H]) Token() fencing.Token {
	if t.lease.req.Kind == locker.KindShared {
		return 0
	}
	return t.token
}

// SharedToken implements [contract.Held].
func (t *turn[H]) SharedToken() fencing.SharedToken {
	if t.lease.req.Kind != locker.KindShared {
		return 0
	}
	return fencing.SharedToken(t.token)
}

// Slot implements [contract.Held].
func (t *turn[H]) Slot() int {
	if t.lease.req.Kind != locker.KindSlots {
		return -1
	}
	return t.lease.grant.Slot
}

// Limit implements [contract.Held].
func (t *turn[H]) Limit(s *contract.Settings) error {
	l, a := t.lease.locker, t.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkHeld(t); err != nil {
		return err
	}
	t.ofSet = true
	now := l.now()
	if t.limit(s.MaxHold, s.MinHold, now, now); t == a.turn {
		a.limit = t.maxEnd
	}
	l.watch(&a.renewed)
	want := *t.req
	if want.MinHold = s.MinHold; s.MinValidity != nil {
		want.MinValidity = *s.MinValidity
	}
	return a.checkValidity(&want, now)
}

// ForgetMinHold implements [contract.Held].
func (t *turn[H]) ForgetMinHold() {
	t.lease.locker.mu.Lock()
	defer t.lease.locker.mu.Unlock()
	if t.lease.locker.checkHeld(t) == nil { // of a lock that is lost, the clean-up reads it
		t.minEnd = 0
	}
}

// Err implements [contract.Held].
func (t *turn[H]) Err() error {
	t.lease.locker.mu.Lock()
	defer t.lease.locker.mu.Unlock()
	return t.lease.locker.checkHeld(t)
}

// Lost implements [contract.Held].
func (t *turn[H]) Lost() <-chan struct{} {
	t.lease.locker.mu.Lock()
	defer t.lease.locker.mu.Unlock()
	if t.lost == nil {
		t.lost = make(chan struct{})
		if errors.Is(t.err, locker.ErrLost) {
			close(t.lost)
		}
	}
	return t.lost
}

// Context implements [contract.Held].
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

// Deadline implements [contract.Held].
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

// Renew implements [contract.Held].
func (t *turn[H]) Renew(ctx context.Context) error { return t.lease.locker.renewNow(ctx, t) }

// Pin returns the attempt that a lock of this Locker's was granted for, and keeps its
// lease from being passed on when it is unlocked. It is for backends that give away the
// lock's place in the store, as a condition of other requests: during another turn that
// condition must not be met. It reports false if the lock is not held, or not by this
// Locker.
func (l *Locker[H]) Pin(lock *locker.Lock) (h H, ok bool) {
	t, mine := locker.HeldOf(contract.Key{}, lock).(*turn[H])
	if !mine || t.lease.locker != l {
		return h, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checkHeld(t) != nil {
		return h, false
	}
	t.lease.pinned = true
	return t.lease.h, true
}

// LeaseOf returns the first number of the lock's lease: the turns of one lease have it in
// common, and no other lock of the name has it. For a lock that is not of this package,
// and does not know its lease, it is the lock's own token.
func LeaseOf(lock *locker.Lock) uint64 {
	if t, ok := locker.HeldOf(contract.Key{}, lock).(interface{ Lease() uint64 }); ok {
		return t.Lease()
	}
	return max(uint64(lock.Token()), uint64(lock.SharedToken()))
}

// LeaseOver reports whether this process knows that the lock's lease is over: given back, or
// lost. After an Unlock the lease goes on while another goroutine has a turn with it. A lock
// that another package made has a lease of its own, which ends with it.
func LeaseOver(lock *locker.Lock) bool {
	if t, ok := locker.HeldOf(contract.Key{}, lock).(interface{ LeaseOver() bool }); ok {
		return t.LeaseOver()
	}
	return lock.Err() != nil
}

// LeaseOver reports whether the turn's lease is over.
func (t *turn[H]) LeaseOver() bool {
	l := t.lease.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.lease.over || t.lease.left(l.now()) <= 0
}

// Lease returns the first number of the turn's lease.
func (t *turn[H]) Lease() uint64 { return t.lease.grant.First }
