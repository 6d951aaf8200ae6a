package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// Do locks name, calls fn, and unlocks, also when fn panics. The context of fn
// carries ctx's values and ends when the lock is lost or ctx ends; its cause
// says which. With [WithGuard] the resources are claimed before fn is called; if
// the claim fails or the lock is lost meanwhile, fn is not called, and nothing of
// [WithMinHold] stays after a claim that failed or panicked.
//
// Do returns the error of Lock. Once the lock is held, the error joins that of fn, or of the claim, and that of
// Unlock, in one line. An [ErrLost] means that the lock was lost before Unlock: fn, or its last
// part, may have run without it.
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context, lock *Lock) error, opts ...Option) error {
	return do(ctx, l, false, name, fn, opts)
}

// TryDo is [Do] with TryLock: if somebody has the lock, fn is not called, and the error is
// an [ErrTaken].
func TryDo(ctx context.Context, l Locker, name string, fn func(ctx context.Context, lock *Lock) error, opts ...Option) error {
	return do(ctx, l, true, name, fn, opts)
}

func do(ctx context.Context, l Locker, tries bool, name string, fn func(ctx context.Context, lock *Lock) error, opts []Option) (err error) {
	l, s, err := settle(l, name, opts, tries)
	if err != nil {
		return err
	}
	guard := s.Guard
	if err := fits(guard, name, s.Shared, s.Slots > 0); err != nil {
		return err
	}
	s.Guard = nil
	lock, err := acquire(l, tries)(ctx, name, given(s))
	if err != nil {
		return err
	}
	claimed := false
	defer func() {
		if !claimed { // its guard may have panicked
			lock.held.ForgetMinHold()
		}
		err = oneLine(err, lock.Unlock(ctx))
	}()
	within, cancel := lock.Bind(ctx)
	defer cancel()
	if err := claim(within, guard, lock); err != nil {
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

// acquire is how a call of l's gets its lock.
func acquire(l Locker, tries bool) func(context.Context, string, ...Option) (*Lock, error) {
	if tries {
		return l.TryLock
	}
	return l.Lock
}

// fits returns an error if the caller has named no resources to claim, or if the guard cannot
// check what a lock of the kind has.
func fits(guard *contract.Guard, name string, shared, slot bool) error {
	switch {
	case guard == nil:
		return nil
	case len(guard.Resources) == 0 && !slot:
		return fmt.Errorf("locker: lock %q: WithGuard needs the names of the resources to claim: those that are written under the lock", name)
	case !shared:
		return nil
	}
	if _, ok := guard.Guard.(fencing.SharedGuard); !ok {
		return fmt.Errorf("locker: lock %q: WithGuard needs a fencing.SharedGuard where the lock is shared, and %T is none", name, guard.Guard)
	}
	return nil
}

// claim claims what belongs to the lock: the resources that the caller has named, or the
// slot's. The kind of the lock may be news: a Locker between may have defaults of its own.
func claim(ctx context.Context, guard *contract.Guard, lock *Lock) error {
	if guard == nil {
		return nil
	}
	number, slot := lock.SharedToken(), lock.Slot()
	if err := fits(guard, lock.Name(), number != 0, slot >= 0); err != nil {
		return err
	}
	resources := guard.Resources
	switch {
	case slot >= 0 && len(resources) > 0:
		return fmt.Errorf("locker: lock %q: WithGuard with slots claims %q, so name no resources", lock.Name(), SlotResource(lock.Name(), slot))
	case slot >= 0:
		resources = []string{SlotResource(lock.Name(), slot)}
	}
	for _, resource := range resources {
		if err := check(ctx, guard.Guard, resource, lock); err != nil {
			return &contract.Unclaimed{Resource: resource, Lock: lock.Name(), Cause: err}
		}
	}
	return nil
}

func check(ctx context.Context, guard fencing.Guard, resource string, lock *Lock) error {
	if number := lock.SharedToken(); number != 0 {
		return guard.(fencing.SharedGuard).CheckShared(ctx, resource, number) // fits has looked
	}
	return guard.Check(ctx, resource, lock.Token())
}
