package redisnode

import (
	"context"
	"errors"

	"github.com/lockstile/locker/driver"
)

// call calls f, in its caller's goroutine if it ends by itself. Otherwise it returns at the end of ctx even
// where f does not. That costs another goroutine, and doubles the time of a request over a
// fast network: see [Node.endsItself].
func call[T any](ctx context.Context, endsItself bool, f func() (T, error)) (reply T, err error) {
	if endsItself {
		reply, err = f()
	} else {
		reply, err = driver.Within(ctx, nil, f)
	}
	if over := ctx.Err(); over != nil && errors.Is(err, over) {
		err = context.Cause(ctx) // the client says no more than that it has ended
	}
	return reply, err
}
