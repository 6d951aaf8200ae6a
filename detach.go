package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lockstile/locker/internal/contract"
)

// Handle stands for a lock that has left its process: [Lock.Detach] returns it, and [Resume] takes it. Whoever has it can take the lock, and free it,
// so it is a secret like a password. Packages fmt and slog show the name alone of a Handle that they are given, but not of one in a field of a struct. The text, which encoding/json writes too, is string(h): 1,024 letters, digits, "-" and "_" at most.
type Handle string

// String says which lock it is for, and keeps the secret.
func (h Handle) String() string {
	d, err := contract.ParseHandle(string(h))
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return fmt.Sprintf("(handle of lock %q)", d.Name)
}

// GoString is String.
func (h Handle) GoString() string { return h.String() }

// LogValue implements [slog.LogValuer], and is String.
func (h Handle) LogValue() slog.Value { return slog.StringValue(h.String()) }

// Detach lets go of the lock and leaves it in the store, where it stays taken until its TTL ends. Whoever has the handle goes on with it, in any
// process: see [Resume], [UnlockHandle], and [RenewHandle] if that takes longer. From then on this process does not believe in the lock: [Lock.Context] ends, and [Lock.Err] is an [ErrUnlocked]. Unlock
// does nothing more, and returns nil. What is left of a [WithMinHold] is forgotten.
//
// Detach renews the lock first. If that is not answered, the lock stays held, as if Detach had not been called. The error is an
// [errors.ErrUnsupported] where [Guarantees].Detaches is false, for a shared lock, for slots, with [WithMaxHold] (no clock is shared by two machines), with
// [WithCounter], and for a lock of a [Set].
func (l *Lock) Detach(ctx context.Context) (Handle, error) {
	d, err := l.held.Detach(ctx)
	if err != nil {
		return "", err
	}
	return Handle(d.Handle()), nil
}

// Resumer is implemented by backends whose locks can leave their process.
type Resumer interface {
	// Resume is [Resume], without the defaults of [With].
	Resume(ctx context.Context, h Handle, opts ...Option) (*Lock, error)

	// RenewHandle is [RenewHandle].
	RenewHandle(ctx context.Context, h Handle, opts ...Option) error

	// UnlockHandle is [UnlockHandle].
	UnlockHandle(ctx context.Context, h Handle) error
}

// Resume goes on with a lock that was detached, in this process or in another one. In one step the store gives the lock to the caller, if nobody else
// has resumed it, with a token greater than that of the process which has detached it. Nobody who waits for the name is
// passed over, because the lock was never free. Then the handle is used up. Resume asks once, and waits for the store for five seconds at most.
//
// The options are those of TryLock, for exclusive locks. WithWait, WithGuard, WithShared, WithSlots and [WithMaxHold] are an
// [errors.ErrUnsupported], as is a handle of another kind of store; so is a WithMaxHold among the defaults of [With], while a WithWait there
// is ignored. The TTL is the handle's unless [WithTTL] says otherwise, here or among the defaults of [With]. If it is
// shorter than what was left, and this process dies, those who wait already may not look before the lock would have ended without it.
// [WithMinHold] counts from now on.
//
// An [ErrLost] says that the lock has ended, was broken, or was resumed by somebody else. After an [ErrOutcomeUnknown] it may have been
// resumed or not: the error is a [*ResumeError], whose handle stands for both cases, so that the caller can try again. After any other error nothing
// has happened, and the handle is as good as before. If ctx came from another lock (Bind, Do, a Set), the error wraps its cause, and an ErrLost may be that one's: the [LostError]
// names it.
func Resume(ctx context.Context, l Locker, h Handle, opts ...Option) (*Lock, error) {
	r, s, err := resumer("resume", l, h, opts)
	if err != nil {
		return nil, err
	}
	return r.Resume(ctx, h, given(s))
}

// RenewHandle renews a lock that was detached: in the store it lasts for another TTL from now on. Anybody who has the handle can do so, in any process and
// as often as needed. The handle stays as it is, and so does the lock's token. RenewHandle asks once, and waits for the store for five seconds at most.
//
// The TTL is the handle's, or that of [WithTTL]. The lock never ends sooner than it would have without the call. Any other option is an [errors.ErrUnsupported], and the defaults of [With] do not count. The handle of a [ResumeError] will do.
//
// An [ErrLost] says that the lock has ended, was broken, or was resumed by somebody. Then nothing has happened: what somebody else has by now lasts no
// longer than before. After an [ErrUnavailable], which an [ErrRefused] is too, the lock may have been renewed or not. After any other error nothing has
// happened. It is always safe to ask again. If ctx came from another lock (Bind, Do, a Set), the error wraps its cause, and an ErrLost may be that one's: the [LostError] names
// it. A Resume that was not answered may still be carried out after a renewal, with its own TTL.
func RenewHandle(ctx context.Context, l Locker, h Handle, opts ...Option) error {
	r, _, err := resumer("renew", l, h, nil)
	if err != nil {
		return err
	}
	return r.RenewHandle(ctx, h, opts...)
}

// UnlockHandle frees a lock that was detached, in one step. Whoever has the handle can do so, in any process. Then the handle is used up. As with [Lock.Unlock], the end of ctx
// does not stop it: UnlockHandle waits for the store for five seconds at most, or with the handle of a [ResumeError] for five seconds for each attempt that it stands for.
//
// An [ErrLost] says that the lock has ended, was broken, was resumed by somebody, or was unlocked by the handle before. Then nothing has happened: what somebody else has by now
// stays. After an [ErrUnavailable], which an [ErrRefused] is too, the lock may have been freed or not. After any other error nothing has happened. It is always
// safe to ask again.
func UnlockHandle(ctx context.Context, l Locker, h Handle) error {
	r, _, err := resumer("unlock", l, h, nil)
	if err != nil {
		return err
	}
	return r.UnlockHandle(ctx, h)
}

// resumer returns whom to ask about a lock that was detached, and what a call with these options asks for.
func resumer(verb string, l Locker, h Handle, opts []Option) (r Resumer, s contract.Settings, err error) {
	d, err := contract.ParseHandle(string(h))
	if err != nil {
		return nil, s, fmt.Errorf("locker: %s: %w", verb, err)
	}
	l, s, err = settle(l, d.Name, opts, true)
	if err != nil {
		return nil, s, err
	}
	r, ok := l.(Resumer)
	if !ok {
		return nil, s, fmt.Errorf("locker: %s %q: %w: %s is no Resumer", verb, d.Name, errors.ErrUnsupported, kind(l))
	}
	return r, s, nil
}

// ResumeError is an [ErrOutcomeUnknown] of [Resume]: the lock was resumed, or it was not. Nobody believes in it, and it ends with its TTL.
type ResumeError struct {
	Handle Handle // for another try
	Cause  error
}

func (e *ResumeError) Error() string {
	return fmt.Sprintf("%v: %v; the error has a handle with which to try again", ErrOutcomeUnknown, e.Cause)
}

// Unwrap makes errors.Is true for [ErrOutcomeUnknown] and for the cause.
func (e *ResumeError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Cause} }
