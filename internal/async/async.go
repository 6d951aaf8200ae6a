// Package async has calls that may go on when nobody waits for them any more: those of clients that
// take no context, or do not heed its end.
package async

import "context"

// Call is a call in a goroutine of its own.
type Call[T any] struct {
	ended chan struct{}
	value T
	err   error
}

// Start calls f. The caller catches its panics.
func Start[T any](f func() (T, error)) *Call[T] {
	c := &Call[T]{ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.value, c.err = f()
	}()
	return c
}

// Failed is a call that was not made, because of err.
func Failed[T any](err error) *Call[T] {
	c := &Call[T]{ended: make(chan struct{}), err: err}
	close(c.ended)
	return c
}

// Ended is closed when the call has returned.
func (c *Call[T]) Ended() <-chan struct{} { return c.ended }

// Wait returns what the call returned, or the cause of ctx's end: then the call goes on, and may
// still have its effect. A call that has returned is not given up.
func (c *Call[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-c.ended:
	case <-ctx.Done():
		select {
		case <-c.ended:
		default:
			var none T
			return none, context.Cause(ctx)
		}
	}
	return c.value, c.err
}

// Do is Start and Wait for a call without a value.
func Do(ctx context.Context, f func() error) error {
	_, err := Start(func() (struct{}, error) { return struct{}{}, f() }).Wait(ctx)
	return err
}
