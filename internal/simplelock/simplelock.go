// Package simplelock makes a [locker.Lock] of one lease, for locks that are not on package
// driver: specimens, and other libraries' locks. It renews the lease after each third of
// the TTL, ends the lock by the local clock, and releases it once. It is simple where the
// driver is fast: each lock has timers of its own.
package simplelock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// releaseTime bounds how long Unlock waits for the store.
const releaseTime = 2 * time.Second

// Lease is what the store granted. Renew and Release are called with a bounded context.
// They return a [locker.LostError] if the store no longer has the lease.
type Lease struct {
	Request *driver.Request
	Token   fencing.Token // of a shared lock its number
	Slot    int
	Since   driver.Instant // read before the request that was granted was sent
	Lasting bool           // it does not end by itself: renewals only look
	Renew   func(ctx context.Context) error
	Release func(ctx context.Context) error
	Lost    func() // if set, called once after a loss, in a goroutine of its own

	Detached func() contract.Detached // if set, called when the lock leaves its process, and is released no more
}

// lock implements [contract.Held].
type lock struct {
	Lease
	maxEnd driver.Instant // the end of WithMaxHold; 0: never
	ctx    context.Context
	cancel context.CancelCauseFunc
	lost   chan struct{}

	mu       sync.Mutex
	since    driver.Instant // of the last renewal that is known to have worked
	deadline driver.Instant // when belief ends; 0: never
	lastErr  error          // of the last renewal
	err      error          // nil while held, then a *LostError or an *Unlocked
	detached bool
	expiry   *time.Timer
	renewal  *time.Timer
}

// Check returns an error if a lease that was requested at since has less validity left
// than the caller wants.
func Check(req *driver.Request, since driver.Instant) error {
	left := req.Deadline(since).Sub(driver.Now())
	if left > 0 && left >= req.MinValidity {
		return nil
	}
	return fmt.Errorf("%w: %v of the TTL of %v are left, at least %v are wanted", locker.ErrUnavailable, left, req.TTL, req.MinValidity)
}

// New returns the Lock of a lease.
func New(lease Lease) *locker.Lock {
	l := &lock{Lease: lease, lost: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	if l.Request.MaxHold > 0 {
		l.maxEnd = l.Since.Add(l.Request.MaxHold)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expiry = time.AfterFunc(time.Hour, func() { _ = l.Err() })
	l.extend(l.Since)
	if l.Request.Renew {
		l.renewal = time.AfterFunc(l.interval(), l.renewSoon)
	}
	return locker.NewLock(contract.Key{}, l)
}

// Lose ends a lock that this package made. It does nothing to another one.
func Lose(lost *locker.Lock, reason locker.Reason, cause error) {
	if l, ok := locker.HeldOf(contract.Key{}, lost).(*lock); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lose(reason, cause)
	}
}

func (l *lock) interval() time.Duration { return l.Request.TTL / 3 }

// extend counts validity from since, unless it counts from a later moment already. The
// caller holds the mutex, as in end and look.
func (l *lock) extend(since driver.Instant) {
	l.since = max(l.since, since)
	l.deadline = l.Request.Deadline(l.since)
	if l.Lasting && l.Request.Renew {
		l.deadline = 0
	}
	if l.maxEnd != 0 && (l.deadline == 0 || l.maxEnd < l.deadline) {
		l.deadline = l.maxEnd
	}
	if l.deadline != 0 {
		l.expiry.Reset(l.deadline.Sub(driver.Now()))
	}
}

// lose ends a lock that is lost, for good. The caller holds the mutex.
func (l *lock) lose(reason locker.Reason, cause error) {
	if l.err != nil {
		return
	}
	l.end(&locker.LostError{Name: l.Request.Name, Reason: reason, Cause: cause})
	close(l.lost)
	if l.Lease.Lost != nil {
		go l.Lease.Lost()
	}
}

// end makes the lock no longer held. The caller holds the mutex.
func (l *lock) end(why error) {
	l.err = why
	l.expiry.Stop()
	if l.renewal != nil {
		l.renewal.Stop()
	}
	l.cancel(why)
}

// look ends the lock if its deadline has passed. A lock that would last longer in the
// store is released there.
func (l *lock) look() {
	if l.err != nil || l.deadline == 0 || driver.Now() < l.deadline {
		return
	}
	reason := locker.ReasonExpired
	switch {
	case l.deadline == l.maxEnd:
		reason = locker.ReasonMaxHold
	case l.lastErr != nil:
		reason = locker.ReasonUnreachable
	}
	l.lose(reason, l.lastErr)
	if reason == locker.ReasonMaxHold || l.Lasting {
		go l.giveBack(context.Background())
	}
}

// renewSoon renews and sets the timer for the next renewal: sooner after an error.
func (l *lock) renewSoon() {
	ctx, cancel := context.WithTimeout(context.Background(), l.interval())
	defer cancel()
	pause := l.interval()
	if l.Renew(ctx) != nil {
		pause = max(pause/5, 10*time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.renewal.Reset(pause)
	}
}

// Renew implements [contract.Held]. An answer that comes after the lock has ended is too
// late, and the lease that it has lengthened is released.
func (l *lock) Renew(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	since := driver.Now()
	err := l.Lease.Renew(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	var lost *locker.LostError
	switch {
	case l.err != nil:
		if err == nil && errors.Is(l.err, locker.ErrLost) {
			go l.giveBack(context.WithoutCancel(ctx))
		}
	case errors.As(err, &lost):
		l.lose(lost.Reason, lost.Cause)
	default:
		if l.lastErr = err; err == nil {
			l.extend(since)
		}
	}
	if l.err != nil {
		return l.err
	}
	return err
}

// giveBack releases what the store may still have of a lock that was lost. It tries once:
// otherwise the end of the lease or of the process frees the lock.
func (l *lock) giveBack(ctx context.Context) { _ = l.release(ctx) }

func (l *lock) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	return l.Release(ctx)
}

// Unlock implements [contract.Held]. Belief ends before the release is sent.
func (l *lock) Unlock(ctx context.Context) error {
	if left, err := l.unlock(false); left || err != nil {
		return err
	}
	return l.release(context.WithoutCancel(ctx))
}

// unlock ends belief, and reports whether the lock leaves its process, or has left it.
func (l *lock) unlock(leave bool) (left bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.look(); {
	case l.detached && !leave:
		return true, nil
	case l.err != nil:
		return false, l.err
	}
	l.detached = leave
	l.end(&contract.Unlocked{Name: l.Request.Name})
	return leave, nil
}

// Detach implements [contract.Held].
func (l *lock) Detach(ctx context.Context) (d contract.Detached, err error) {
	if l.Detached == nil || l.Request.Kind != locker.KindExclusive || l.maxEnd != 0 {
		return d, errors.ErrUnsupported
	}
	if err := l.Renew(ctx); err != nil {
		return d, err
	}
	if _, err := l.unlock(true); err != nil {
		return d, err
	}
	return l.Detached(), nil
}

// Err implements [contract.Held].
func (l *lock) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	return l.err
}

// Deadline implements [contract.Held].
func (l *lock) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.deadline == 0 {
		return time.Time{}
	}
	return now.Add(l.deadline.Sub(driver.Now()))
}

func (l *lock) Name() string { return l.Request.Name }
func (l *lock) Token() fencing.Token {
	if l.Request.Kind == locker.KindShared {
		return 0
	}
	return l.Lease.Token
}

// SharedToken implements [contract.Held].
func (l *lock) SharedToken() fencing.SharedToken {
	if l.Request.Kind != locker.KindShared {
		return 0
	}
	return fencing.SharedToken(l.Lease.Token)
}

// Slot implements [contract.Held].
func (l *lock) Slot() int {
	if l.Request.Kind != locker.KindSlots {
		return -1
	}
	return l.Lease.Slot
}

// Limit implements [contract.Held].
func (l *lock) Limit(s *contract.Settings) error {
	if err := l.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.MaxHold > 0 {
		l.maxEnd = driver.Now().Add(s.MaxHold)
		l.extend(l.since)
	}
	want := *l.Request
	if s.MinValidity != nil {
		want.MinValidity = *s.MinValidity
	}
	return Check(&want, l.since)
}

// ForgetMinHold implements [contract.Held]. What a Release keeps is its own affair.
func (l *lock) ForgetMinHold() {}

func (l *lock) Context() context.Context { return l.ctx }
func (l *lock) Lost() <-chan struct{}    { return l.lost }
