package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker/fencing"
)

// releaseTime bounds what Unlock waits for the store, and what is done behind
// the caller's back after a loss.
const releaseTime = 2 * time.Second

// Hold is what a backend has in its hands when the store has granted a lock, and
// which is not built on package driver. [NewLock] makes the Lock of it.
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

// kept is a hold under the watch of a Keeper.
type kept struct {
	hold   Hold
	maxEnd Instant // the end of WithMaxHold, or never

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
	l := &kept{hold: h, index: -1}
	if h.Request.MaxHold > 0 {
		l.maxEnd = h.Since.Add(h.Request.MaxHold)
	}
	h.Keeper.keep(l)
	return LockOf(l)
}

// Lose ends a lock at once. It is for backends whose store tells them that a
// lock is gone: its session ended, its key was deleted. A lock that is no longer
// held stays as it is.
func Lose(l *Lock, reason Reason, cause error) {
	if k, ok := l.held.(*kept); ok {
		k.hold.Keeper.lose(k, reason, cause)
	}
}

func (l *kept) Name() string         { return l.hold.Request.Name }
func (l *kept) Token() fencing.Token { return l.hold.Token }
func (l *kept) Err() error           { return l.hold.Keeper.check(l) }

func (l *kept) Renew(ctx context.Context) error { return l.hold.Keeper.renewNow(ctx, l) }

func (l *kept) Lost() <-chan struct{} {
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

func (l *kept) Context() context.Context {
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

func (l *kept) Deadline() time.Time {
	k := l.hold.Keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.deadline == 0 {
		return time.Time{}
	}
	return time.Now().Add(l.deadline.Sub(Now()))
}

func (l *kept) Unlock(ctx context.Context) error {
	if err := l.hold.Keeper.unlock(l); err != nil {
		return err
	}
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return l.release(ctx)
}

func (l *kept) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	return l.hold.Release(ctx)
}

// extend counts validity from since, if that is later than what it counts from
// now. The Keeper's mutex is held.
func (l *kept) extend(since Instant) {
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
func (l *kept) over(now Instant) bool { return l.deadline != 0 && now >= l.deadline }

// reason says why belief ends at the deadline. The Keeper's mutex is held.
func (l *kept) reason() Reason {
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
func (l *kept) end(reason Reason, cause error) {
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
