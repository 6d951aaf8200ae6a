package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/chores"
)

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Clock is what validity counts on. The default is [locker.Now]; a store in
	// memory may have another.
	Clock func() locker.Instant
}

// Locker is a [locker.Locker] on a Store.
type Locker[H any] struct {
	name  string // of the backend: its errors begin with it
	store Store[H]
	now   func() locker.Instant

	closing context.Context // ends with Close
	close   context.CancelFunc
	chores  chores.Chores // clean-ups under way

	mu     sync.Mutex
	lines  map[string]*line[H]
	leases leases[H]
}

var (
	_ locker.Locker    = (*Locker[int])(nil)
	_ locker.Inspector = (*Locker[int])(nil)
	_ locker.Breaker   = (*Locker[int])(nil)
	_ locker.Lister    = (*Locker[int])(nil)
)

// New returns a Locker on s. The name is the backend's package, with which its
// errors begin.
func New[H any](name string, s Store[H], opts Options) *Locker[H] {
	if opts.Clock == nil {
		opts.Clock = locker.Now
	}
	l := &Locker[H]{name: name, store: s, now: opts.Clock, lines: make(map[string]*line[H])}
	l.closing, l.close = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return l
}

// Now reads the Locker's clock, for [Grant].
func (l *Locker[H]) Now() locker.Instant { return l.now() }

// Lock implements [locker.Locker].
func (l *Locker[H]) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.lock(ctx, name, opts, false)
}

// TryLock implements [locker.Locker].
func (l *Locker[H]) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.lock(ctx, name, opts, true)
}

func (l *Locker[H]) lock(ctx context.Context, name string, opts []locker.Option, once bool) (*locker.Lock, error) {
	req, err := locker.NewRequest(name, opts...)
	if err != nil {
		return nil, err
	}
	c := &call[H]{req: req, once: once}
	c.h, err = l.store.Begin(req)
	switch {
	case err != nil:
	case l.closing.Err() != nil:
		l.store.End(c.h)
		err = locker.ErrClosed
	case ctx.Err() != nil:
		l.store.End(c.h)
		err = cause(ctx)
	default:
		var t *turn[H]
		if t, err = l.obtain(ctx, c); err == nil {
			return locker.LockOf(t), nil
		}
	}
	return nil, l.wrap("lock", name, err)
}

func (l *Locker[H]) wrap(verb, name string, err error) error {
	return fmt.Errorf("%s: %s %q: %w", l.name, verb, name, err)
}

// over reports whether ctx has ended, or its deadline has passed: a client that heeds
// the deadline by itself may return a moment before ctx ends.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// cause is why ctx is over.
func cause(ctx context.Context) error {
	err := context.Cause(ctx)
	switch {
	case err == nil:
		return context.DeadlineExceeded
	case errors.Is(err, ctx.Err()):
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// Lose ends a lease at once. It is for backends whose store tells them that a lock is
// gone: its session ended, its key was deleted. One that is no longer held stays as it
// is. Lose calls nothing of the Store's before it returns.
func (l *Locker[H]) Lose(name string, h H, reason locker.Reason, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.lines[name]; {
	case n == nil:
	case n.lease != nil && any(n.lease.h) == any(h):
		l.lose(n.lease, reason, cause)
	case n.lease == nil && any(n.front.h) == any(h):
		n.front.lost = &locker.LostError{Reason: reason, Cause: cause} // its grant is on the way
	}
}

// Guarantees implements [locker.Locker].
func (l *Locker[H]) Guarantees() locker.Guarantees { return l.store.Features().Guarantees }

// Inspect implements [locker.Inspector], if the Store does.
func (l *Locker[H]) Inspect(ctx context.Context, name string) (locker.Info, error) {
	s, ok := any(l.store).(locker.Inspector)
	if err := l.can(ok, locker.CheckName(name)); err != nil {
		return locker.Info{}, err
	}
	info, err := s.Inspect(ctx, name)
	if err != nil {
		return locker.Info{}, l.wrap("inspect", name, unavailable(err))
	}
	info.Name = name
	return info, nil
}

// Break implements [locker.Breaker], if the Store does.
func (l *Locker[H]) Break(ctx context.Context, name string) (bool, error) {
	s, ok := any(l.store).(locker.Breaker)
	if err := l.can(ok, locker.CheckName(name)); err != nil {
		return false, err
	}
	broken, err := s.Break(ctx, name)
	if err != nil {
		return false, l.wrap("break", name, unavailable(err))
	}
	return broken, nil
}

// List implements [locker.Lister], if the Store does.
func (l *Locker[H]) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	s, ok := any(l.store).(locker.Lister)
	if err := l.can(ok, nil); err != nil {
		return nil, err
	}
	infos, err := s.List(ctx, prefix)
	if err != nil {
		return nil, l.wrap("list", prefix, unavailable(err))
	}
	slices.SortFunc(infos, func(a, b locker.Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

// can returns an error if the Store cannot do what it is asked, or a bad argument's.
func (l *Locker[H]) can(ok bool, bad error) error {
	if !ok {
		return fmt.Errorf("%s: %w", l.name, errors.ErrUnsupported)
	}
	return bad
}

// Close ends the waiting: waiters get [locker.ErrClosed]. It waits, for two seconds
// at most, for clean-ups under way. Locks that are held stay held, renewed and
// unlockable.
func (l *Locker[H]) Close() error {
	l.close()
	l.endSessions()
	idle := make(chan struct{})
	go func() { // ends with the last clean-up
		l.chores.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(releaseTime):
	}
	return nil
}
