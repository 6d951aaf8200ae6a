package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker"
)

// userContext is a user's context without its cause. A Store returns the cause of its context
// when a call ends with it. If the context came from another lock, that cause is a
// [locker.ErrLost]; in a group of goroutines it may be a [locker.ErrTaken]. The Locker would
// take it for the store's answer about this lock.
type userContext struct {
	context.Context
	values context.Context // the same one, without its end
}

// causeless returns a context for a Store that ends with ctx and has its values. Its cause is
// what ctx.Err returns.
func causeless(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return userContext{ctx, context.WithoutCancel(ctx)}
}

// Value hides from package context that the context can have a cause.
func (c userContext) Value(key any) any { return c.values.Value(key) }

// AfterFunc lets package context derive a context without a goroutine for each.
func (c userContext) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

// ending is how a user's context has ended: what its Err returns, and its cause. Both are nil if
// it has not.
type ending struct{ err, cause error }

// ended returns how ctx has ended. A client that heeds the deadline by itself may return a
// moment before ctx ends. It is not called under a mutex: a context's methods may be its
// user's, and may ask a lock of the same Locker.
func ended(ctx context.Context) ending {
	if err := ctx.Err(); err != nil {
		return ending{err, context.Cause(ctx)}
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return ending{context.DeadlineExceeded, context.DeadlineExceeded}
	}
	return ending{}
}

// why is the end for people and errors.Is, or nil.
func (e ending) why() error {
	if errors.Is(e.cause, e.err) {
		return e.cause
	}
	return fmt.Errorf("%w: %w", e.err, e.cause)
}

// unavailable makes err, which a Store has returned, an [locker.ErrUnavailable] that says how the
// context of its call has ended, once. What the caller knows of the store is looked for in err
// alone.
func (e ending) unavailable(err error) error {
	why := e.why()
	switch {
	case why == nil || errors.Is(err, why):
		return unavailable(err)
	case errors.Is(why, err): // the Store has said no more than that
		return fmt.Errorf("%w: %w", locker.ErrUnavailable, why)
	case errors.Is(err, e.err):
		why = e.cause
	}
	return fmt.Errorf("%w: %w", unavailable(err), why)
}
