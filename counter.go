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
// the draw was over is not returned. So tokens are in the order of grants for
// as long as l excludes; where it does not, they are still never used twice.
// The Tokens of its Guarantees are therefore l's Exclusion without PromptHolder,
// for a holder that was paused over the draw gets no lock, together with what c
// leans on: the result of c's method Tokens() Assumptions if it has one, else
// DurableServer and DurableReplica.
func WithCounter(l Locker, c fencing.Counter) Locker {
	return &counted{l, c}
}

type counted struct {
	Locker
	counter fencing.Counter
}

func (c *counted) Lock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	lock, err := c.Locker.Lock(ctx, name, opts...)
	if err != nil {
		return nil, err
	}
	return c.count(ctx, lock)
}

func (c *counted) TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	lock, err := c.Locker.TryLock(ctx, name, opts...)
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
			err = errors.Join(err, lock.Unlock(ctx))
		}
	}()
	token, err := c.counter.Next(ctx, lock.Name())
	if err == nil {
		// Without this look, a holder that was paused between the grant
		// and the draw would come back with a greater token than that of
		// whoever holds the lock by now.
		err = lock.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("locker: token for lock %q: %w", lock.Name(), err)
	}
	lock.token, counted = token, true
	return lock, nil
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
