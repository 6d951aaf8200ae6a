package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstile/locker/fencing"
)

// releaseTime bounds what Unlock waits for the store, and what is done behind
// the caller's back after a loss.
const releaseTime = 2 * time.Second

// Hold is what a backend has in its hands when the store has granted a lock.
// [NewLock] makes the Lock of it.
type Hold struct {
	// Request is what was granted.
	Request *Request

	// Token is greater than those of all earlier grants of the name.
	Token fencing.Token

	// Since was read ([Now]) before the request that the store granted was
	// sent for the first time. Validity counts from here, for the store may
	// have started the lease at any moment after it.
	Since Instant

	// Keeper renews the lock. A Locker has one for all its locks.
	Keeper *Keeper

	// Lease is what Keeper's function is given for this lock.
	Lease any

	// Lasting says that the store keeps the lock without a lease, for as
	// long as this process (or its session) lives. Such a lock has no end of
	// validity; its renewals only look whether it is still there.
	Lasting bool

	// Release gives the lock back in the store, if it is still this holder's:
	// compared and removed in one atomic step. Its context ends after a short
	// while and is never over at the start. If the store has the lock no more
	// it returns a [LostError]. It must bear being called again, and after a
	// loss, to clean up.
	Release func(ctx context.Context) error

	// Lost, if set, is called once, in a goroutine of its own, when the lock
	// is lost: for the backend's own books.
	Lost func()
}

// Lock is one acquisition of a lock: a handle, used once. Its methods may be
// called from any goroutine.
type Lock struct {
	hold   Hold
	token  fencing.Token
	maxEnd Instant // the end of WithMaxHold, or never

	once     sync.Once
	returned bool  // the release has; else it panicked
	result   error // of Unlock

	// What follows is guarded by the Keeper's mutex.
	since    Instant   // of the last renewal that is known to have worked
	deadline Instant   // when belief ends, or never
	next     Instant   // when the Keeper looks at it again, or never
	index    int       // in the Keeper's heap, -1 outside
	renewing bool      // a renewal by the Keeper is under way
	lastErr  error     // of the last renewal
	err      error     // nil while held, then a *LostError
	unlocked LostError // err after an Unlock: the usual end takes no memory of its own
	lost     chan struct{}
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

// NewLock makes the Lock of a hold, and is the only way to make one. Renewal,
// the end of validity and once-only release are its work, not the backend's. It
// panics if Request, Since, Keeper or Release is missing.
func NewLock(h Hold) *Lock {
	switch {
	case h.Request == nil:
		panic("locker: NewLock without Request")
	case h.Since == 0:
		panic("locker: NewLock without Since")
	case h.Keeper == nil:
		panic("locker: NewLock without Keeper")
	case h.Release == nil:
		panic("locker: NewLock without Release")
	}
	l := &Lock{hold: h, token: h.Token, index: -1}
	if h.Request.MaxHold > 0 {
		l.maxEnd = h.Since.Add(h.Request.MaxHold)
	}
	h.Keeper.keep(l)
	return l
}

// Lose ends a lock at once. It is for backends whose store tells them that a
// lock is gone: its session ended, its key was deleted. A lock that is no longer
// held stays as it is.
func Lose(l *Lock, reason Reason, cause error) {
	l.hold.Keeper.lose(l, reason, cause)
}

// Name returns the name that is locked.
func (l *Lock) Name() string { return l.hold.Request.Name }

// Token returns the fencing token of this acquisition. Pass it to the storage
// with every write. It stays readable after the lock is lost; the storage then
// refuses it as soon as it has seen the next one.
func (l *Lock) Token() fencing.Token { return l.token }

// Err returns nil while the lock is held, and then a *[LostError] whose Reason
// says why it no longer is. It reads the clock: it is right also where the
// process has just been woken and no timer has fired yet. A nil is true of the
// past only. Between it and whatever is done next the process may be paused for
// any length of time, so what must be safe needs the token.
func (l *Lock) Err() error {
	return l.hold.Keeper.check(l)
}

// Lost returns a channel that is closed when the lock is lost. It is not closed
// by Unlock.
func (l *Lock) Lost() <-chan struct{} {
	k := l.hold.Keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if isLoss(l.err) {
			close(l.lost)
		}
	}
	return l.lost
}

// Context returns a context that ends when the lock is lost or unlocked;
// [context.Cause] is then what Err returns. It carries no values and does not
// depend on the context that was passed to Lock.
func (l *Lock) Context() context.Context {
	k := l.hold.Keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
		if l.err != nil {
			l.cancel(l.err)
		}
	}
	return l.ctx
}

// Deadline returns when this process stops believing in the lock unless it is
// renewed before. It is the zero Time for a lock that has no lease, which ends
// with the process. The instant is counted on the clock of [Instant]; the
// returned Time is for showing and for timers.
func (l *Lock) Deadline() time.Time {
	k := l.hold.Keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.deadline == 0 {
		return time.Time{}
	}
	return time.Now().Add(l.deadline.Sub(Now()))
}

// Renew asks the store for another TTL now. Most callers never need it: without
// [WithoutRenewal] a lock is renewed by itself. An [ErrLost] says that the lock
// is lost. After any other error it is held until its deadline, which the
// renewal may or may not have moved in the store.
func (l *Lock) Renew(ctx context.Context) error {
	return l.hold.Keeper.renewNow(ctx, l)
}

// Unlock gives the lock back. Its context ends before the store is asked. Unlock
// reports [ErrLost] if the lock had been lost before, in which case nothing in
// the store was touched, or if the store has it no more. After any other error
// the lock may still be held in the store, and ends with its lease at the
// latest.
//
// A ctx that is over, or ends, does not stop the release: Unlock carries ctx's
// values, not its end, and waits two seconds at most. Calls after the first do
// nothing and return the first call's result; if that panicked, which only a
// defect of the backend or of the client in it can bring about, an
// [ErrOutcomeUnknown].
func (l *Lock) Unlock(ctx context.Context) error {
	l.once.Do(func() {
		l.result = l.unlock(ctx)
		l.returned = true
	})
	if !l.returned {
		return fmt.Errorf("locker: lock %q: %w: the first Unlock panicked before the store had answered", l.Name(), ErrOutcomeUnknown)
	}
	return l.result
}

func (l *Lock) unlock(ctx context.Context) error {
	if err := l.hold.Keeper.unlock(l); err != nil {
		return err
	}
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return l.release(ctx)
}

func (l *Lock) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	return l.hold.Release(ctx)
}

// extend counts validity from since, if that is later than what it counts from
// now. The Keeper's mutex is held.
func (l *Lock) extend(since Instant) {
	l.since = max(l.since, since)
	l.deadline = l.hold.Request.Deadline(l.since)
	if l.hold.Lasting && l.hold.Request.Renew {
		l.deadline = 0
	}
	if l.maxEnd != 0 && (l.deadline == 0 || l.maxEnd < l.deadline) {
		l.deadline = l.maxEnd
	}
}

// over reports whether belief has ended. The Keeper's mutex is held.
func (l *Lock) over(now Instant) bool { return l.deadline != 0 && now >= l.deadline }

// reason says why belief ends at the deadline. The Keeper's mutex is held.
func (l *Lock) reason() Reason {
	switch {
	case l.deadline == l.maxEnd:
		return MaxHold
	case l.lastErr != nil:
		return Unreachable
	default:
		return Expired
	}
}

// end makes the lock no longer held, for good. The Keeper's mutex is held.
func (l *Lock) end(reason Reason, cause error) {
	lost := &l.unlocked
	if reason != Unlocked {
		lost = new(LostError) // who keeps the error of a loss does not keep the lock
	}
	*lost = LostError{Name: l.Name(), Reason: reason, Cause: cause}
	l.err = lost
	if l.lost != nil && reason != Unlocked {
		close(l.lost)
	}
	if l.cancel != nil {
		l.cancel(l.err)
	}
	if l.hold.Lost != nil && reason != Unlocked {
		go l.hold.Lost()
	}
}

// isLoss tells a loss from an unlock.
func isLoss(err error) bool {
	var lost *LostError
	return errors.As(err, &lost) && lost.Reason != Unlocked
}
