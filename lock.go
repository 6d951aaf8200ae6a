package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// Lock is one acquisition of a lock: a handle, used once. Its methods may be
// called from any goroutine. It is renewed in the background until Unlock, a loss, or the
// end of the process: if nobody unlocks it, nobody else gets the lock. [WithMaxHold] sets
// a limit; there is none by default.
type Lock struct {
	held contract.Held

	mu       sync.Mutex
	unlocks  bool           // Unlock was called
	first    sync.WaitGroup // the first call of it
	returned bool           // it has returned; else it panicked
	result   error          // of it
}

// String returns the name, the token or slot, and how long the lock is valid, or why it is not
// held, for people. It may change, and shows no secret.
func (l *Lock) String() string {
	s := fmt.Sprintf("lock %q", l.Name())
	switch token, shared, slot := l.Token(), l.SharedToken(), l.Slot(); {
	case shared != 0:
		s += fmt.Sprintf(", shared, number %d", shared)
	case slot >= 0:
		s += fmt.Sprintf(", slot %d, token %d", slot, token)
	default:
		s += fmt.Sprintf(", token %d", token)
	}
	err, end, lost := l.Err(), l.Deadline(), (*LostError)(nil)
	switch {
	case errors.As(err, &lost):
		return s + ", lost: " + lost.Reason.String()
	case err != nil:
		return s + ", unlocked"
	case end.IsZero():
		return s + ", valid while this process lives"
	}
	return s + fmt.Sprintf(", valid for %v", time.Until(end).Round(time.Millisecond))
}

// Name returns the name that is locked.
func (l *Lock) Name() string { return l.held.Name() }

// Token returns the fencing token of this acquisition: greater than those of all
// earlier holders of the name, under the assumptions in the Tokens of the Locker's
// [Guarantees]. Pass it to the storage with every write. It stays readable after the
// lock is lost, and the storage refuses it once it has seen the next holder's. It is 0 for
// a shared lock.
func (l *Lock) Token() fencing.Token { return l.held.Token() }

// SharedToken returns the number of a shared lock: greater than the tokens of all earlier
// exclusive holders of the name, and smaller than those of all later ones. Readers that
// hold the lock at the same time may have the same number. It is 0 for other locks.
func (l *Lock) SharedToken() fencing.SharedToken { return l.held.SharedToken() }

// Slot returns which slot of [WithSlots] this is, from 0, and -1 for other locks. Of those
// who have a slot one after another, the later one has the greater Token; of those who
// have different slots, the tokens say nothing.
func (l *Lock) Slot() int { return l.held.Slot() }

// Err returns nil while this process believes in the lock, a *[LostError] whose Reason says
// why after a loss, and an [ErrUnlocked] after Unlock. It reads this machine's clock and does
// not ask the store, so it is right also when the machine has just been woken and
// no timer has fired yet. A nil says only that the lock was held when you asked: before the next step the
// process may be paused for any length of time, so what must be safe needs the
// token.
func (l *Lock) Err() error { return l.held.Err() }

// Lost returns a channel that is closed when the lock is lost: at the end of its
// validity by this machine's clock, or as soon as this process hears that the store
// no longer has it. After the machine was suspended that may take a second; [Lock.Err]
// is never late. Unlock does not close it.
func (l *Lock) Lost() <-chan struct{} { return l.held.Lost() }

// Context returns a context that ends when the lock is lost or unlocked;
// [context.Cause] is then what Err returns. It carries no values and does not
// depend on the context that was passed to Lock.
func (l *Lock) Context() context.Context { return l.held.Context() }

// Bind returns a context with ctx's values that ends when ctx or [Lock.Context] does;
// [context.Cause] says which, and why. It is for work that has a context of its own and
// must not go on without the lock. Call the function when the work is done: that releases
// what the context holds, and leaves the lock alone.
func (l *Lock) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	return bind(ctx, l)
}

// bind is Bind, of a Lock or a Set.
func bind(ctx context.Context, held interface {
	Err() error
	Context() context.Context
},
) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancelCause(ctx)
	if err := held.Err(); err != nil {
		cancel(err)
	}
	stop := context.AfterFunc(held.Context(), func() { cancel(held.Err()) })
	return within, func() {
		stop()
		cancel(nil)
	}
}

// Deadline returns when this process stops believing in the lock unless it is
// renewed before. It is the zero Time for a lock that has no lease, which ends
// with the process. Validity is counted on this machine's clock of elapsed time,
// that runs on while the machine is suspended, from before the request that granted or renewed the lock was sent;
// the returned Time is for showing and for timers.
func (l *Lock) Deadline() time.Time { return l.held.Deadline() }

// Renew asks the store for another TTL now. Most callers never need it: without
// [WithoutRenewal] a lock is renewed by itself. An [ErrLost] says that the lock
// is lost, an [ErrUnlocked] that it was unlocked. If ctx came from another lock (Bind, Do, a Set), the error wraps the cause of ctx, and
// an ErrLost may be that one's: this lock is lost if [Lock.Err] says so. If ctx had ended
// before the call, the error is its cause alone, and the store was not asked. After any other
// error the lock is held until its [Lock.Deadline], and the store may or may not keep it for
// longer.
func (l *Lock) Renew(ctx context.Context) error { return l.held.Renew(ctx) }

// Unlock gives the lock back. [Lock.Context] ends before the store is asked. With
// [WithMinHold] nobody else gets the lock before that time is over. If
// another goroutine of this process waits for the name, its turn with the lease may
// begin right there, and the store is not asked: Unlock then returns nil though
// the store may have lost the lease, which the next renewal finds out.
//
// Unlock reports [ErrLost] if the lock had been lost before, in which case the store
// was not asked, or if the store no longer has it. After any other error the lock
// may still be held in the store; it is removed in the background, and ends with
// its lease at the latest.
//
// The end of ctx does not stop the release: Unlock uses ctx's values only, and waits
// for the store for two seconds at most. Calls after the first do nothing and return
// the first call's result. If the first call panicked, through a defect of the backend
// or of its client, they return [ErrOutcomeUnknown].
func (l *Lock) Unlock(ctx context.Context) error {
	if !l.firstUnlock() {
		if !l.returned {
			return fmt.Errorf("locker: lock %q: %w: the first Unlock panicked before the store had answered", l.Name(), ErrOutcomeUnknown)
		}
		return l.result
	}
	defer l.first.Done()
	l.result = l.held.Unlock(ctx)
	l.returned = true
	return l.result
}

// firstUnlock reports whether this call of Unlock is the first, else it waits until that one
// is over. It does not wait in sync.Once: a bubble of testing/synctest takes a goroutine that
// waits for a mutex for one that runs.
func (l *Lock) firstUnlock() bool {
	l.mu.Lock()
	isFirst := !l.unlocks
	if isFirst {
		l.unlocks = true
		l.first.Add(1)
	}
	l.mu.Unlock()
	if !isFirst {
		l.first.Wait()
	}
	return isFirst
}
