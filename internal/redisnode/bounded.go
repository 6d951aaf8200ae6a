package redisnode

import (
	"context"
	"errors"

	"github.com/lockstile/locker/driver"
)

// call calls f, which may end by itself: then in its caller's goroutine.
func call[T any](ctx context.Context, endsItself bool, f func(context.Context) (T, error)) (T, error) {
	if !endsItself {
		return bounded(ctx, f)
	}
	reply, err := f(ctx)
	return reply, why(ctx, err)
}

// bounded calls f and returns at the end of ctx even where f does not. It costs another
// goroutine, and that doubles the time of a request over a fast network: see [Node.endsItself].
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
		return r.reply, why(ctx, r.err)
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// why returns err, or if the client says in it no more than that ctx has ended, why it has.
func why(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil && errors.Is(err, over) {
		return context.Cause(ctx)
	}
	return err
}
