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
	"github.com/lockstile/locker/internal/contract"
)

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Clock is what validity counts on. It never goes back, and never reads zero.
	// The default is [Now]; a store in memory may have another.
	Clock func() Instant
}

// Locker is a [locker.Locker] on a Store.
type Locker[H any] struct {
	name  string // of the backend: its errors begin with it
	store Store[H]
	now   func() Instant

	closing    context.Context // ends with Close
	close      context.CancelFunc
	calls      *background // of Lock and TryLock, which have not returned
	background *background // clean-ups under way

	mu       sync.Mutex
	lines    map[string]*line[H]
	schedule schedule[H]
}

// New returns a Locker on s. Its errors begin with name, which is the backend's
// package.
func New[H any](name string, s Store[H], opts Options) *Locker[H] {
	if opts.Clock == nil {
		opts.Clock = Now
	}
	l := &Locker[H]{name: name, store: s, now: opts.Clock, calls: newBackground(), background: newBackground(), lines: make(map[string]*line[H])}
	l.closing, l.close = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return l
}

// Now reads the Locker's clock, for [Grant] and [Sessions].
func (l *Locker[H]) Now() Instant { return l.now() }

// Lock implements [locker.Locker].
func (l *Locker[H]) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.lock(ctx, name, opts, false)
}

// TryLock implements [locker.Locker].
func (l *Locker[H]) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.lock(ctx, name, opts, true)
}

func (l *Locker[H]) lock(ctx context.Context, name string, opts []locker.Option, once bool) (*locker.Lock, error) {
	s, err := locker.ParseOptions(contract.Key{}, nil, name, opts)
	switch {
	case err != nil:
		return nil, err
	case s.Guard != nil:
		return nil, errGuard(name)
	case once && s.Wait > 0:
		return nil, fmt.Errorf("locker: lock %q: WithWait works with Lock; TryLock does not wait", name)
	}
	req := newRequest(name, s)
	if err := l.has(&req.Request); err != nil {
		return nil, l.wrap("lock", name, err)
	}
	t, err := l.turn(ctx, &call[H]{req: req, once: once})
	if err != nil {
		return nil, err
	}
	return locker.NewLock(contract.Key{}, t), nil
}

// turn returns a turn for c.
func (l *Locker[H]) turn(ctx context.Context, c *call[H]) (t *turn[H], err error) {
	defer l.calls.begin()()
	if c.req.observed() {
		c.began = l.now()
		defer func() {
			if t == nil {
				l.reportFailed(c, err)
			}
		}()
	}
	switch {
	case l.closing.Err() != nil:
		err = locker.ErrClosed
	case ctx.Err() != nil:
		err = ended(ctx).why()
	default:
		switch c.h, err = l.store.Begin(&c.req.Request); {
		case err != nil:
		case c.handle != nil:
			t, err = l.takeOver(ctx, c)
		default:
			ctx, stop := c.req.Waiting(ctx)
			defer stop()
			t, err = l.acquire(ctx, c)
		}
	}
	switch {
	case err != nil && c.handle != nil:
		return nil, l.wrap("resume", c.req.Name, err)
	case err != nil:
		return nil, l.wrap("lock", c.req.Name, err)
	}
	return t, nil
}

// has returns an error if the Store does not have the kind of lock that is asked for.
func (l *Locker[H]) has(req *Request) error {
	g := l.store.Guarantees()
	switch {
	case req.Kind == locker.KindShared && !g.Shared:
		return fmt.Errorf("%w: there are no shared locks on this backend", errors.ErrUnsupported)
	case req.Kind == locker.KindSlots && !g.Slots:
		return fmt.Errorf("%w: there are no slots on this backend: take one of the %d names %q to %q instead, with TryLock",
			errors.ErrUnsupported, req.Slots, locker.SlotResource(req.Name, 0), locker.SlotResource(req.Name, req.Slots-1))
	}
	return nil
}

// Mismatch is the error of an Acquire that finds the name held, or waited for, as have,
// with so many slots, which does not go with req. It ends a wait.
func Mismatch(req *Request, have locker.Kind, slots int) error {
	return fmt.Errorf("%w: it is held or waited for as %s, and this request wants %s: all who use the name must ask for the same",
		locker.ErrMismatch, inWords(have, slots), inWords(req.Kind, req.Slots))
}

func inWords(k locker.Kind, slots int) string {
	if k == locker.KindSlots {
		return fmt.Sprintf("one of %d slots", slots)
	}
	return fmt.Sprintf("a lock that is %v", k)
}

func (l *Locker[H]) wrap(verb, name string, err error) error {
	return fmt.Errorf("%s: %s %q: %w", l.name, verb, name, err)
}

// Lose ends the lease that h holds, and the turn under way, at once. It is for backends
// whose store tells them that a lock is gone: its session ended, its key was deleted. A
// lease that is over already stays as it is. Lose calls nothing of the Store's before it
// returns.
func (l *Locker[H]) Lose(name string, h H, reason locker.Reason, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.lines[name]; {
	case n == nil:
	case n.lease != nil && any(n.lease.h) == any(h):
		l.lose(&n.lease.renewed, reason, cause)
	case n.lease == nil && n.front != nil && any(n.front.h) == any(h):
		n.front.lost = &locker.LostError{Reason: reason, Cause: cause} // its grant is on the way
	default:
		if i := slices.IndexFunc(n.beside, func(a *lease[H]) bool { return any(a.h) == any(h) }); i >= 0 {
			l.lose(&n.beside[i].renewed, reason, cause)
		}
	}
}

// Guarantees implements [locker.Locker].
func (l *Locker[H]) Guarantees() locker.Guarantees { return l.store.Guarantees() }

// Inspect implements [locker.Inspector], if the Store does. During a turn, Token is the
// first of the lease's tokens: no store knows whose turn it is.
func (l *Locker[H]) Inspect(ctx context.Context, name string) (locker.Info, error) {
	info, err := question(ctx, l, "inspect", name, locker.CheckName(name), locker.Inspector.Inspect)
	if err == nil {
		info.Name = name
		showHolder(&info)
	}
	return info, err
}

// showHolder adds the one holder of an exclusive lock, so that Holders has all of every kind.
func showHolder(info *locker.Info) {
	if info.Held && info.Kind == locker.KindExclusive {
		info.Holders = []locker.Holder{{Text: info.Holder, Number: locker.Number(info.Token), Slot: -1, TimeLeft: info.TimeLeft}}
	}
}

// Break implements [locker.Breaker], if the Store does.
func (l *Locker[H]) Break(ctx context.Context, name string) (bool, error) {
	return l.breakHolders(ctx, name, 0, locker.CheckName(name))
}

// BreakHolder implements [locker.Breaker], if the Store does.
func (l *Locker[H]) BreakHolder(ctx context.Context, name string, number locker.Number) (bool, error) {
	err := locker.CheckName(name)
	if err == nil && number == 0 {
		err = fmt.Errorf("locker: break %q: no holder has the number 0, which Inspect shows where the store does not know the number", name)
	}
	return l.breakHolders(ctx, name, number, err)
}

// breakHolders has the Store break one holder, or if number is 0 all of them. bad is about the
// arguments.
func (l *Locker[H]) breakHolders(ctx context.Context, name string, number locker.Number, bad error) (bool, error) {
	return question(ctx, l, "break", name, bad, func(s Breaker, ctx context.Context, name string) (bool, error) { return s.Break(ctx, name, number) })
}

// List implements [locker.Lister], if the Store does.
func (l *Locker[H]) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	infos, err := question(ctx, l, "list", prefix, nil, locker.Lister.List)
	for i := range infos {
		showHolder(&infos[i])
	}
	slices.SortFunc(infos, func(a, b locker.Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, err
}

// question asks the Store, if it is an S, for what is no attempt's. bad is about the name.
func question[S, T, H any](ctx context.Context, l *Locker[H], verb, name string, bad error, ask func(S, context.Context, string) (T, error)) (answer T, err error) {
	s, ok := any(l.store).(S)
	switch {
	case !ok:
		return answer, fmt.Errorf("%s: %w", l.name, errors.ErrUnsupported)
	case bad != nil:
		return answer, bad
	}
	got, err := ask(s, causeless(ctx), name)
	if err != nil {
		return answer, l.wrap(verb, name, ended(ctx).unavailable(err))
	}
	return got, nil
}

// Close makes waiters, and all calls of Lock and TryLock from now on, return
// [locker.ErrClosed]. Locks that are held stay held, are renewed and can be unlocked.
// Close waits for calls that have not returned, for clean-ups and for observers, for two
// seconds at most, and returns nil. Clean-ups that have not worked are tried until then;
// what they leave in the store ends with its lease there.
func (l *Locker[H]) Close() error {
	l.close()
	l.endSessions()
	idle := make(chan struct{})
	go func() { // ends with the last clean-up
		l.calls.wait() // they may begin clean-ups
		l.background.wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(releaseTime):
	}
	return nil
}
