package locker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockstile/locker/fencing"
)

// Lock is one acquisition of a lock: a handle, used once. Its methods may be
// called from any goroutine.
type Lock struct {
	held Held

	once     sync.Once
	returned bool  // Unlock has; else it panicked
	result   error // of Unlock
}

// Held is one acquisition as package driver keeps it. Its methods do what those of
// [Lock] promise; Unlock is called once. Only authors of backends need it.
type Held interface {
	Name() string
	Token() fencing.Token
	Context() context.Context
	Lost() <-chan struct{}
	Err() error
	Deadline() time.Time
	Renew(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// LockOf returns the Lock of what is held.
func LockOf(h Held) *Lock { return &Lock{held: h} }

// HeldOf returns what LockOf was given.
func HeldOf(l *Lock) Held { return l.held }

// Name returns the name that is locked.
func (l *Lock) Name() string { return l.held.Name() }

// Token returns the fencing token of this acquisition. Pass it to the storage
// with every write. It stays readable after the lock is lost; the storage then
// refuses it as soon as it has seen the next one.
func (l *Lock) Token() fencing.Token { return l.held.Token() }

// Err returns nil while the lock is held, and then a *[LostError] whose Reason
// says why it no longer is. It reads the clock: it is right also where the
// process has just been woken and no timer has fired yet. A nil is true of the
// past only. Between it and whatever is done next the process may be paused for
// any length of time, so what must be safe needs the token.
func (l *Lock) Err() error { return l.held.Err() }

// Lost returns a channel that is closed when the lock is lost. It is not closed
// by Unlock.
func (l *Lock) Lost() <-chan struct{} { return l.held.Lost() }

// Context returns a context that ends when the lock is lost or unlocked;
// [context.Cause] is then what Err returns. It carries no values and does not
// depend on the context that was passed to Lock.
func (l *Lock) Context() context.Context { return l.held.Context() }

// Deadline returns when this process stops believing in the lock unless it is
// renewed before. It is the zero Time for a lock that has no lease, which ends
// with the process. The instant is counted on the clock of [Instant]; the
// returned Time is for showing and for timers.
func (l *Lock) Deadline() time.Time { return l.held.Deadline() }

// Renew asks the store for another TTL now. Most callers never need it: without
// [WithoutRenewal] a lock is renewed by itself. An [ErrLost] says that the lock
// is lost. After any other error it is held until its deadline, which the
// renewal may or may not have moved in the store.
func (l *Lock) Renew(ctx context.Context) error { return l.held.Renew(ctx) }

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
		l.result = l.held.Unlock(ctx)
		l.returned = true
	})
	if !l.returned {
		return fmt.Errorf("locker: lock %q: %w: the first Unlock panicked before the store had answered", l.Name(), ErrOutcomeUnknown)
	}
	return l.result
}
