package locker

import (
	"context"
	"errors"
	"fmt"
)

// Do locks name, calls fn, and unlocks, also when fn panics. The context of fn
// carries ctx's values and ends when the lock is lost or ctx ends; its cause
// says which. With [WithGuard] the resources are claimed before fn is called; if
// the claim fails or the lock is lost meanwhile, fn is not called.
//
// Do returns the error of Lock; or that of fn or the claim and that of Unlock, in one
// line. An [ErrLost] means that the lock was lost before Unlock: fn, or its last
// part, may have run without it.
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context, lock *Lock) error, opts ...Option) error {
	return do(ctx, l.Lock, name, fn, opts)
}

// TryDo is [Do] with TryLock: if somebody has the lock, fn is not called, and the error is
// an [ErrTaken].
func TryDo(ctx context.Context, l Locker, name string, fn func(ctx context.Context, lock *Lock) error, opts ...Option) error {
	return do(ctx, l.TryLock, name, fn, opts)
}

func do(ctx context.Context, acquire func(context.Context, string, ...Option) (*Lock, error), name string,
	fn func(ctx context.Context, lock *Lock) error, opts []Option,
) (err error) {
	req, err := newRequest(name, opts)
	if err != nil {
		return err
	}
	lock, err := acquire(ctx, name, append(opts[:len(opts):len(opts)], withoutGuard)...)
	if err != nil {
		return err
	}
	defer func() { err = oneLine(err, lock.Unlock(ctx)) }()
	within, cancel := lock.Bind(ctx)
	defer cancel()
	if err := claim(within, req.guard, lock); err != nil {
		return err
	}
	if lock.Err() != nil {
		return nil // Unlock says it; the context may not have ended yet
	}
	return fn(within, lock)
}

// oneLine wraps two errors, either of which may be nil, in one line. If the first wraps
// the second already, as when a function returns why its context ended, it is the first.
func oneLine(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil || errors.Is(first, second):
		return first
	}
	return fmt.Errorf("%w; %w", first, second)
}

func claim(ctx context.Context, use *guardUse, lock *Lock) error {
	if use == nil {
		return nil
	}
	for _, resource := range use.resources {
		if err := use.guard.Check(ctx, resource, lock.Token()); err != nil {
			return fmt.Errorf("locker: claim %q under lock %q: %w", resource, lock.Name(), err)
		}
	}
	return nil
}
