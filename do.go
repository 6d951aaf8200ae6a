package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker/fencing"
)

// Do locks name, calls fn, and unlocks, also when fn panics. The context of fn
// carries ctx's values and ends when the lock is lost or ctx ends; its cause
// says which. With [WithGuard] the resources are claimed before fn is called; if
// the claim fails or the lock is lost meanwhile, fn is not called, and nothing of
// [WithMinHold] stays after a claim that failed or panicked.
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
	if err := req.guard.fits(req); err != nil {
		return err
	}
	lock, err := acquire(ctx, name, append(opts[:len(opts):len(opts)], withoutGuard)...)
	if err != nil {
		return err
	}
	claimed := false
	defer func() {
		if !claimed { // its guard may have panicked
			lock.forgetMinHold()
		}
		err = oneLine(err, lock.Unlock(ctx))
	}()
	within, cancel := lock.Bind(ctx)
	defer cancel()
	if err := claim(within, req.guard, lock); err != nil {
		return err
	}
	claimed = true
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

// fits returns an error if the caller has named no resources to claim, or if the guard cannot
// check what the lock will have.
func (use *guardUse) fits(req *Request) error {
	switch {
	case use == nil:
		return nil
	case len(use.resources) == 0 && req.Kind != Slots:
		return fmt.Errorf("locker: lock %q: WithGuard needs the names of the resources to claim: those that are written under the lock", req.Name)
	case req.Kind != Shared:
		return nil
	}
	if _, ok := use.guard.(fencing.SharedGuard); !ok {
		return fmt.Errorf("locker: lock %q: WithGuard needs a fencing.SharedGuard where the lock is shared, and %T is none", req.Name, use.guard)
	}
	return nil
}

// claim claims what belongs to the lock: the resources that the caller has named, or the
// slot's.
func claim(ctx context.Context, use *guardUse, lock *Lock) error {
	if use == nil {
		return nil
	}
	resources := use.resources
	if slot := lock.Slot(); slot >= 0 {
		resources = []string{SlotResource(lock.Name(), slot)}
	}
	for _, resource := range resources {
		if err := use.check(ctx, resource, lock); err != nil {
			return fmt.Errorf("locker: claim %q under lock %q: %w", resource, lock.Name(), err)
		}
	}
	return nil
}

func (use *guardUse) check(ctx context.Context, resource string, lock *Lock) error {
	if number := lock.SharedToken(); number != 0 {
		return use.guard.(fencing.SharedGuard).CheckShared(ctx, resource, number) // fits has looked
	}
	return use.guard.Check(ctx, resource, lock.Token())
}
