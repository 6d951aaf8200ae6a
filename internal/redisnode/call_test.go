package redisnode

import (
	"context"
	"errors"
	"testing"
)

// ended is a context whose end is noticed only after what is done in it: a busy machine runs
// goroutines in such an order.
type ended struct {
	context.Context
	after chan struct{}
}

func (c ended) Done() <-chan struct{} {
	<-c.after
	return c.Context.Done()
}

// The client, or a hook of its, ends a request when the node's time is over: it says that the context
// was cancelled. That must not be said to a caller who has cancelled nothing. Why it ended is said.
func TestRequestThatTheClientEndsWithItsContextSaysWhy(t *testing.T) {
	slow := errors.New("the node is slow")
	for range 100 { // both have happened, and a select chooses
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(slow)
		after := make(chan struct{})
		_, err := call(ended{ctx, after}, false, func() (any, error) {
			defer close(after)
			return nil, ctx.Err()
		})
		if !errors.Is(err, slow) || errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}
