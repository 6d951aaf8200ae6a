package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstile/locker"
)

// userContext is a user's context whose cause says nothing. A Store returns the cause of
// its context where a call ends with it. The cause is the user's: a context that came from
// another lock has an [locker.ErrLost], and one of a group of goroutines may have an
// [locker.ErrTaken], which the Locker would take for the store's word about this lock.
type userContext struct {
	context.Context
	values context.Context // the same one, without its end
}

// causeless returns ctx for a Store. It ends with ctx and has its values, and its cause is
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

// ended returns why ctx is over, or nil. A client that heeds the deadline by itself may
// return a moment before ctx ends. It is not called under a mutex: a context's methods may
// be its user's, and may ask a lock of the same Locker.
func ended(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	switch err := context.Cause(ctx); {
	case err == nil && ok && !time.Now().Before(deadline):
		return context.DeadlineExceeded
	case err == nil || errors.Is(err, ctx.Err()):
		return err
	default:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
}

// noMore reports whether err, which a Store has returned, says no more than that its context has
// ended.
func noMore(err error) bool {
	text := strings.TrimPrefix(err.Error(), locker.ErrUnavailable.Error()+": ")
	return text == context.Canceled.Error() || text == context.DeadlineExceeded.Error()
}

// unavailable makes err, which a Store has returned, an [locker.ErrUnavailable] of a call
// whose context has ended because of why, or has not. What the caller knows of the store is
// looked for in err alone.
func unavailable(why, err error) error {
	err = locker.Unavailable(err)
	if why == nil || errors.Is(err, why) {
		return err
	}
	return fmt.Errorf("%w: %w", err, why)
}
