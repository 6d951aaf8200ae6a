package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker/fencing"
)

// WithCounter returns a Locker that locks with l and takes its tokens from c:
// exclusion from a fast store, say, and tokens from the durable one that the
// lock protects. It costs one call of c more per lock.
//
// The token is drawn while the lock is held, and a lock that was lost before
// the draw was over is not returned. After a draw that failed, that ctx ended or
// that gave the zero token, the lock is given back: the error is an
// [ErrUnavailable] then, or an [ErrOutcomeUnknown] if that failed too, and wraps
// the counter's. A call takes as long as c does to heed the end of ctx.
//
// What comes back is a Locker and no more: to inspect or break its locks, use l.
//
// So tokens are in the order of grants for as long as l excludes; where it does
// not, they are still never used twice. The Tokens of its Guarantees are
// therefore l's Exclusion without PromptHolder, for a holder that was paused over
// the draw gets no lock, together with what c leans on: the result of c's method
// Tokens() Assumptions if it has one, else DurableServer and DurableReplica.
func WithCounter(l Locker, c fencing.Counter) Locker {
	return &counted{l, c}
}

type counted struct {
	Locker
	counter fencing.Counter
}

func (c *counted) Lock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	lock, err := c.Locker.Lock(ctx, name, append(opts[:len(opts):len(opts)], alone)...)
	if err != nil {
		return nil, err
	}
	return c.count(ctx, lock)
}

func (c *counted) TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	lock, err := c.Locker.TryLock(ctx, name, append(opts[:len(opts):len(opts)], alone)...)
	if err != nil {
		return nil, err
	}
	return c.count(ctx, lock)
}

// count gives the lock a token of the counter's before anybody has seen it. One
// without, also because the counter panicked, is given back.
func (c *counted) count(ctx context.Context, lock *Lock) (_ *Lock, err error) {
	counted := false
	defer func() {
		if !counted {
			err = lock.discard(ctx, err)
		}
	}()
	token, err := c.counter.Next(ctx, lock.Name())
	switch {
	case err == nil && token == 0:
		return nil, errors.New("the counter gave the zero token, which every guard refuses")
	case err == nil:
		// Without this look, a holder that was paused between the grant
		// and the draw would come back with a greater token than that of
		// whoever holds the lock by now.
		err = lock.Err()
	case ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)):
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		return nil, err
	}
	counted = true
	return LockOf(withToken{lock.held, token}), nil
}

// withToken is a lock that has its token from a counter.
type withToken struct {
	Held
	token fencing.Token
}

func (h withToken) Token() fencing.Token { return h.token }

// discard gives back a lock that is of no use, because of why, and returns what
// is to be told of it. Of a lost one the backend removes what the store may still have.
func (l *Lock) discard(ctx context.Context, why error) error {
	err := l.Unlock(ctx)
	if err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("locker: lock %q: %w: no token was drawn: %w; and it could not be given back: %w", l.Name(), ErrOutcomeUnknown, why, err)
	}
	return fmt.Errorf("locker: lock %q: %w: no token was drawn: %w", l.Name(), ErrUnavailable, why)
}

// Guarantees implements [Locker].
func (c *counted) Guarantees() Guarantees {
	g := c.Locker.Guarantees()
	leans := DurableServer | DurableReplica
	if d, ok := c.counter.(interface{ Tokens() Assumptions }); ok {
		leans = d.Tokens()
	}
	g.Tokens = g.Exclusion&^PromptHolder | leans // count looks at the lock after the draw
	return g
}
