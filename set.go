package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// MaxSet is how many names a [Set] can have.
const MaxSet = 64

// Set is several locks that were taken together with [LockAll]. It is held while all of
// them are.
type Set struct {
	names []string // in order
	locks []*Lock  // of the first of these names, in the end of all

	ctx    context.Context
	cancel context.CancelCauseFunc
	lost   chan struct{}

	mu  sync.Mutex
	err error
}

// LockAll locks all names, or none. It takes one after another, in the order of their
// bytes, whatever the order in which they are given: so two programs that ask for the same
// names never wait for each other in a circle. While a program holds a Set it must not wait
// for further locks. A name that is given twice is locked once; there may be [MaxSet] names.
//
// The options are for each of the locks. [WithWait] bounds the whole call. [WithMaxHold] and
// [WithMinHold] count from the moment at which the last lock is there, and [WithMinValidity]
// is what each must have left then. WithGuard is refused: call the guard's Check with each
// lock's token.
//
// If one name cannot be locked, or a lock is lost meanwhile, LockAll gives back what it
// has. Its error is that of the one name, or an [ErrUnavailable] if a lock was lost. It is an
// [ErrOutcomeUnknown] as well if one could not be given back; that may take two seconds.
func LockAll(ctx context.Context, l Locker, names []string, opts ...Option) (*Set, error) {
	req, sorted, err := newSet(names, opts)
	if err != nil {
		return nil, err
	}
	return lockAll(ctx, l.Lock, req, sorted, opts)
}

// TryLockAll is [LockAll] with TryLock: it waits only for the store's answers. If somebody
// has one of the locks, the error is an [ErrTaken].
func TryLockAll(ctx context.Context, l Locker, names []string, opts ...Option) (*Set, error) {
	req, sorted, err := newSet(names, opts)
	switch {
	case err != nil:
		return nil, err
	case req.Wait > 0:
		return nil, fmt.Errorf("locker: lock %q: WithWait works with LockAll; TryLockAll does not wait", sorted)
	}
	return lockAll(ctx, l.TryLock, req, sorted, opts)
}

// DoAll locks all names, calls fn, and unlocks them, also when fn panics. The context of fn
// carries ctx's values and ends when one of the locks is lost or ctx ends. The errors are
// those of [LockAll], fn and [Set.Unlock], as in [Do].
func DoAll(ctx context.Context, l Locker, names []string, fn func(ctx context.Context, set *Set) error, opts ...Option) (err error) {
	set, err := LockAll(ctx, l, names, opts...)
	if err != nil {
		return err
	}
	defer func() { err = oneLine(err, set.Unlock(ctx)) }()
	within, cancel := bind(ctx, set)
	defer cancel()
	if set.Err() != nil {
		return nil // Unlock says it; the context may not have ended yet
	}
	return fn(within, set)
}

// newSet validates names and options, and returns the names in order, and what was asked
// for with each of them.
func newSet(names []string, opts []Option) (req *Request, sorted []string, err error) {
	sorted = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(sorted) == 0 || len(sorted) > MaxSet {
		return nil, nil, fmt.Errorf("locker: a Set has 1 to %d names, and these are %d", MaxSet, len(sorted))
	}
	for _, name := range sorted {
		if req, err = newRequest(name, opts); err != nil {
			return nil, nil, err
		}
	}
	if req.guard != nil {
		return nil, nil, fmt.Errorf("locker: lock %q: WithGuard works with Do; call the guard's Check with each lock of the Set yourself", sorted)
	}
	return req, sorted, nil
}

// lockAll takes the locks, and gives back what it has if it does not return them, also
// because a hook of the client's panics.
func lockAll(ctx context.Context, acquire func(context.Context, string, ...Option) (*Lock, error), req *Request, names []string, opts []Option,
) (_ *Set, err error) {
	s := &Set{names: names, lost: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	complete := false
	defer func() {
		if !complete {
			err = s.discard(ctx, err)
		}
	}()
	over := ctx.Err() != nil
	wait, stop := req.Waiting(ctx)
	defer stop()
	within, unbind := bind(wait, s)
	defer unbind()
	for _, name := range names {
		lock, err := acquire(within, name, append(opts[:len(opts):len(opts)], inSet)...)
		switch {
		case err == nil:
			s.add(lock)
		case s.Err() != nil:
			return nil, s.incomplete(err)
		case !over && wait.Err() != nil: // perhaps it ended after an earlier name was locked
			return nil, Unavailable(err)
		default:
			return nil, err
		}
	}
	for _, lock := range s.locks {
		if err := lock.held.Limit(req); err != nil {
			return nil, s.incomplete(err)
		}
	}
	complete = true
	return s, nil
}

// add makes the Set depend on a lock. No goroutine waits for its loss.
func (s *Set) add(lock *Lock) {
	s.locks = append(s.locks, lock)
	context.AfterFunc(lock.Context(), func() { _ = s.end(lock.Err()) })
}

// incomplete is the error of a Set that has lost a lock, or has too little validity left,
// before it was complete.
func (s *Set) incomplete(err error) error {
	lost := s.Err()
	switch {
	case lost == nil:
		return err
	case errors.Is(err, ErrOutcomeUnknown):
		return fmt.Errorf("%w; %w", err, lost)
	}
	return fmt.Errorf("%w: before all were locked: %w", ErrUnavailable, lost)
}

// discard gives back the locks of a Set that did not become complete, because of why, and
// returns the caller's error. Nothing of WithMinHold stays.
func (s *Set) discard(ctx context.Context, why error) error {
	for _, lock := range s.locks {
		lock.forgetMinHold()
	}
	errs := slices.DeleteFunc(s.unlockAll(ctx), func(err error) bool { return errors.Is(err, ErrLost) }) // then the backend removes it
	if len(errs) > 0 {
		why = fmt.Errorf("%w: %w; and not all could be given back: %w", ErrOutcomeUnknown, why, inOneLine(errs))
	}
	if len(s.names) == 1 {
		return why
	}
	return fmt.Errorf("locker: lock %d names: %w", len(s.names), why)
}

// unlockAll unlocks the locks at the same time, and returns their errors: while the store is
// silent each takes two seconds. If a hook of the client's panics, so does unlockAll when
// all others are done.
func (s *Set) unlockAll(ctx context.Context) []error {
	errs, panics := make([]error, len(s.locks)), make(chan any, len(s.locks))
	var all sync.WaitGroup
	for i, lock := range s.locks {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
				}
			}()
			errs[i] = lock.Unlock(ctx)
		})
	}
	all.Wait()
	select {
	case p := <-panics:
		panic(p)
	default:
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// inOneLine wraps errors, the first of which is shown: of a store that is away, all are the
// same but for the name.
func inOneLine(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return &several{errs}
}

type several struct{ errs []error }

func (e *several) Error() string {
	return fmt.Sprintf("%v; and %d more of the locks have errors", e.errs[0], len(e.errs)-1)
}

func (e *several) Unwrap() []error { return e.errs }

// Names returns the names that are locked, in the order of their bytes.
func (s *Set) Names() []string { return slices.Clone(s.names) }

// Lock returns the lock of one name, for its token, or nil if the Set does not have the
// name. Each name has a token of its own. A lock of the Set that is unlocked ends the Set.
func (s *Set) Lock(name string) *Lock {
	i, ok := slices.BinarySearchFunc(s.locks, name, func(l *Lock, name string) int { return strings.Compare(l.Name(), name) })
	if !ok {
		return nil
	}
	return s.locks[i]
}

// Err returns nil while this process believes in all the locks, and then the *[LostError] of
// the first that is known to be lost. Like [Lock.Err] it reads the clock.
func (s *Set) Err() error {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, lock := range s.locks {
		if err := lock.Err(); err != nil {
			return s.end(err)
		}
	}
	return nil
}

// end ends the Set, unless it has ended already, and returns why it did.
func (s *Set) end(why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.err = why
	if lost := (*LostError)(nil); !errors.As(why, &lost) || lost.Reason != Unlocked {
		close(s.lost)
	}
	s.cancel(why)
	return why
}

// Lost returns a channel that is closed when one of the locks is lost. Unlock does not close
// it. See [Lock.Lost].
func (s *Set) Lost() <-chan struct{} { return s.lost }

// Context returns a context that ends when one of the locks is lost or unlocked;
// [context.Cause] is then what Err returns. See [Lock.Context].
func (s *Set) Context() context.Context { return s.ctx }

// Unlock gives all locks back, at the same time. The context of the Set ends before the
// store is asked. The error, in one line, wraps those of the locks: it is an [ErrLost] if one
// was lost, and the others are given back all the same. See [Lock.Unlock]. Calls after the
// first do nothing and return the first call's result.
func (s *Set) Unlock(ctx context.Context) error {
	_ = s.Err() // a loss that no timer has told of yet
	_ = s.end(&LostError{Name: s.names[0], Reason: Unlocked})
	return inOneLine(s.unlockAll(ctx))
}
