package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstile/locker/internal/contract"
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
// names cannot deadlock. While a program holds a Set it must not wait
// for further locks. A name that is given twice is locked once; there may be [MaxSet] names.
//
// The options are for each of the locks. [WithWait] bounds the whole call. [WithMaxHold] and
// [WithMinHold] count from the moment at which the last lock is there, and [WithMinValidity]
// is what each must have left then. WithGuard is refused: call the guard's Check with each
// lock's token.
//
// If one name cannot be locked, or a lock is lost meanwhile, LockAll gives back what it
// has. Its error says which name could not be locked, and why, or is an [ErrUnavailable] if a lock was lost. It is an
// [ErrOutcomeUnknown] as well if one could not be given back; that may take two seconds.
func LockAll(ctx context.Context, l Locker, names []string, opts ...Option) (*Set, error) {
	return lockAll(ctx, l, false, names, opts)
}

// TryLockAll is [LockAll] with TryLock: it waits only for the store's answers. If somebody
// has one of the locks, the error is an [ErrTaken].
func TryLockAll(ctx context.Context, l Locker, names []string, opts ...Option) (*Set, error) {
	return lockAll(ctx, l, true, names, opts)
}

// DoAll locks all names, calls fn, and unlocks them, also when fn panics. The context of fn
// carries ctx's values and ends when one of the locks is lost or ctx ends. The errors are
// those of [LockAll], fn and [Set.Unlock], as in [Do].
func DoAll(ctx context.Context, l Locker, names []string, fn func(ctx context.Context, set *Set) error, opts ...Option) error {
	return doAll(ctx, l, false, names, fn, opts)
}

// TryDoAll is [DoAll] with [TryLockAll]: if somebody has one of the locks, fn is not called, and
// the error is an [ErrTaken].
func TryDoAll(ctx context.Context, l Locker, names []string, fn func(ctx context.Context, set *Set) error, opts ...Option) error {
	return doAll(ctx, l, true, names, fn, opts)
}

func doAll(ctx context.Context, l Locker, tries bool, names []string, fn func(ctx context.Context, set *Set) error, opts []Option) (err error) {
	set, err := lockAll(ctx, l, tries, names, opts)
	if err != nil {
		return err
	}
	defer func() { err = oneLine(err, set.Unlock(ctx)) }()
	within, cancel := set.Bind(ctx)
	defer cancel()
	if set.Err() != nil {
		return nil // Unlock says it; the context may not have ended yet
	}
	return fn(within, set)
}

// inOrder returns the names in the order in which they are locked, or an error if they cannot
// be.
func inOrder(names []string) ([]string, error) {
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(sorted) == 0 || len(sorted) > MaxSet {
		return nil, fmt.Errorf("locker: a Set has 1 to %d names, and these are %d", MaxSet, len(sorted))
	}
	for _, name := range sorted {
		if err := CheckName(name); err != nil {
			return nil, err
		}
	}
	return sorted, nil
}

// each returns what the locks of a Set are asked for, if all is asked for: without what counts
// for the whole Set. No reader joins a shared lock that will have a maximum hold: it would end
// for that reader, too.
func each(all contract.Settings) contract.Settings {
	all.Alone = all.Alone || all.Shared && all.MaxHold > 0
	all.Wait, all.MaxHold, all.MinHold = 0, 0, 0
	return all
}

// lockAll takes the locks, and gives back what it has if it does not return them, also
// because a hook of the client's panics.
func lockAll(ctx context.Context, l Locker, tries bool, names []string, opts []Option) (_ *Set, err error) {
	if names, err = inOrder(names); err != nil {
		return nil, err
	}
	l, all, err := settle(l, names[0], opts, tries)
	switch {
	case err != nil:
		return nil, err
	case all.Guard != nil:
		return nil, fmt.Errorf("locker: lock %q: WithGuard works with Do; call the guard's Check with each lock of the Set yourself", names)
	case tries && all.Wait > 0:
		return nil, fmt.Errorf("locker: lock %q: WithWait works with LockAll; TryLockAll does not wait", names)
	}
	s := &Set{names: names, lost: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	complete := false
	defer func() {
		if !complete {
			err = s.discard(ctx, err)
		}
	}()
	over := ctx.Err() != nil
	wait, stop := contract.Waiting(ctx, all.Wait)
	defer stop()
	within, unbind := s.Bind(wait)
	defer unbind()
	for _, name := range names {
		lock, err := acquire(l, tries)(within, name, given(each(all)))
		switch {
		case err == nil:
			s.add(lock)
		case s.Err() != nil:
			return nil, s.incomplete(err)
		case !over && wait.Err() != nil && !contract.IsAny(err, ErrUnavailable, ErrTaken, ErrMismatch, ErrOutcomeUnknown, ErrClosed):
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err) // it may have ended after an earlier name was locked
		default:
			return nil, err
		}
	}
	for _, lock := range s.locks {
		if err := lock.held.Limit(&all); err != nil {
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
		lock.held.ForgetMinHold()
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

// Locks returns the locks, in the order of the bytes of their names. Each has a token of its
// own. One that is unlocked ends the Set.
func (s *Set) Locks() []*Lock { return slices.Clone(s.locks) }

// Lock returns the lock of one name, or an error if the Set does not have the name.
func (s *Set) Lock(name string) (*Lock, error) {
	i, ok := slices.BinarySearchFunc(s.locks, name, func(l *Lock, name string) int { return strings.Compare(l.Name(), name) })
	if !ok {
		return nil, fmt.Errorf("locker: the Set of %q has no lock %q", s.names, name)
	}
	return s.locks[i], nil
}

// Err returns nil while this process believes in all the locks, the *[LostError] of the first
// that is known to be lost, and an [ErrUnlocked] after Unlock. Like [Lock.Err] it reads the
// clock.
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
	if errors.Is(why, ErrLost) {
		close(s.lost)
	}
	s.cancel(why)
	return why
}

// Bind is [Lock.Bind] for all the locks: the context ends with the first of them.
func (s *Set) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	return bind(ctx, s)
}

// Deadline returns the earliest [Lock.Deadline] of the locks, or the zero Time if none has an
// end.
func (s *Set) Deadline() (first time.Time) {
	for _, lock := range s.locks {
		if end := lock.Deadline(); first.IsZero() || !end.IsZero() && end.Before(first) {
			first = end
		}
	}
	return first
}

// Lost returns a channel that is closed when one of the locks is lost. Unlock does not close
// it. See [Lock.Lost].
func (s *Set) Lost() <-chan struct{} { return s.lost }

// Context returns a context that ends when one of the locks is lost or unlocked;
// [context.Cause] is then what Err returns. See [Lock.Context].
func (s *Set) Context() context.Context { return s.ctx }

// Unlock gives all locks back, at the same time. The context of the Set ends before the
// store is asked. The error wraps the errors of the locks, in one line. It is an [ErrLost] if one
// was lost; the others are given back all the same. See [Lock.Unlock]. Calls after the
// first do nothing and return the first call's result.
func (s *Set) Unlock(ctx context.Context) error {
	_ = s.Err() // a loss that no timer has told of yet
	_ = s.end(&contract.Unlocked{Name: s.names[0]})
	return inOneLine(s.unlockAll(ctx))
}
