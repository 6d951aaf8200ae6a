package redisnode

import (
	"context"
	"errors"

	"github.com/lockstile/locker/driver"
)

// bounded calls f and returns at the end of ctx even where f does not: go-redis
// never interrupts a read for a cancelled context, and looks at its deadline
// only if the client was told to.
func bounded[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		reply T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = driver.Caught(func() (err error) {
			r.reply, err = f(ctx)
			return err
		})
		done <- r
	}()
	select {
	case r := <-done:
		if over := ctx.Err(); over != nil && errors.Is(r.err, over) {
			r.err = context.Cause(ctx) // the client says that it was cancelled, and not why
		}
		return r.reply, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
