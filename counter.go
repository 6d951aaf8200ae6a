package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// WithCounter returns a Locker that locks with l and takes its tokens from c: for
// example, exclusion from a fast store and tokens from the durable one that the lock
// protects. It costs one call of c more per lock, and no lease is passed on from
// goroutine to goroutine in memory.
//
// The token is drawn while the lock is held. If the draw fails, is ended by ctx or
// gives the zero token, or if the lock is lost before the draw is over, the lock is
// given back and not returned, and nothing of [WithMinHold] stays: the error is an
// [ErrUnavailable] and wraps the cause;
// if giving it back failed too, it is an [ErrOutcomeUnknown]. When ctx ends, a call
// returns as soon as c does.
//
// What l is besides ([Inspector], [Breaker], [Lister]) the new Locker is as well. The tokens
// that these show and take are l's own.
//
// A shared lock has the counter's number as its [Lock.SharedToken].
//
// Tokens are in the order of grants as long as l excludes. If l fails to, they are still
// never used twice. So the Tokens of the new Guarantees are l's
// Exclusion without PromptHolder (a holder that was paused during the draw gets no
// lock), together with what c assumes, which its documentation says: DurableServer and
// DurableReplica, of a database that may lose what it has acknowledged in a crash or failover.
func WithCounter(l Locker, c fencing.Counter, assumes Assumptions) Locker {
	if w, ok := l.(*with); ok { // stays outside, where Do and LockAll look for defaults
		outside := *w
		outside.Locker = WithCounter(w.Locker, c, assumes)
		return &outside
	}
	return &counted{optional{l}, c, assumes}
}

type counted struct {
	optional
	counter fencing.Counter
	assumes Assumptions
}

func (c *counted) Lock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	s, err := c.alone(name, opts)
	if err != nil {
		return nil, err
	}
	lock, err := c.Locker.Lock(ctx, name, given(s))
	if err != nil {
		return nil, err
	}
	return c.count(ctx, lock)
}

func (c *counted) TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	s, err := c.alone(name, opts)
	if err != nil {
		return nil, err
	}
	lock, err := c.Locker.TryLock(ctx, name, given(s))
	if err != nil {
		return nil, err
	}
	return c.count(ctx, lock)
}

// alone returns what a call asks for. Its lock is not passed on within the process: a lease
// that is over, unknown to its process, would draw a greater number than its successor has.
func (c *counted) alone(name string, opts []Option) (contract.Settings, error) {
	_, s, err := settle(c.Locker, name, opts, false)
	s.Alone = true
	return s, err
}

// count gives the lock a token of the counter before anybody sees it. A lock that gets
// none, also because the counter panicked, is given back.
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
		// A holder that was paused between the grant and the draw may have
		// lost the lock, and drawn a greater token than its successor.
		err = lock.Err()
	case ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)):
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		return nil, err
	}
	counted = true
	return &Lock{held: withToken{lock.held, token}}, nil
}

// Resume implements [Resumer]. A counter's token would not be drawn where the store knows who is first.
func (c *counted) Resume(context.Context, Handle, ...Option) (*Lock, error) {
	return nil, errCounted
}

// RenewHandle implements [Resumer].
func (c *counted) RenewHandle(context.Context, Handle, ...Option) error { return errCounted }

// UnlockHandle implements [Resumer].
func (c *counted) UnlockHandle(context.Context, Handle) error { return errCounted }

var errCounted = fmt.Errorf("locker: %w: a lock with WithCounter cannot be detached", errors.ErrUnsupported)

// withToken is a lock with a token from a counter.
type withToken struct {
	contract.Held
	token fencing.Token
}

func (h withToken) Token() fencing.Token {
	if h.Held.SharedToken() != 0 {
		return 0
	}
	return h.token
}

func (h withToken) SharedToken() fencing.SharedToken {
	if h.Held.SharedToken() == 0 {
		return 0
	}
	return fencing.SharedToken(h.token)
}

func (h withToken) Detach(context.Context) (d contract.Detached, err error) { return d, errCounted }

// discard gives back a lock that got no token, because of why, and returns the caller's
// error. If it was lost, the backend removes what the store may still have.
func (l *Lock) discard(ctx context.Context, why error) error {
	l.held.ForgetMinHold()
	err := l.Unlock(ctx)
	if err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("locker: lock %q: %w: no token was drawn: %w; and it could not be given back: %w", l.Name(), ErrOutcomeUnknown, why, err)
	}
	return fmt.Errorf("locker: lock %q: %w: no token was drawn: %w", l.Name(), ErrUnavailable, why)
}

// Guarantees implements [Locker].
func (c *counted) Guarantees() Guarantees {
	g := c.Locker.Guarantees()
	g.Detaches = false
	g.Tokens = g.Exclusion&^PromptHolder | c.assumes // count looks at the lock after the draw
	return g
}
