package redisnode

import (
	"context"
	"sync"
)

// bounded calls f and returns at the end of ctx even where f does not: go-redis
// never interrupts a read for a cancelled context, and looks at its deadline
// only if the client was told to.
func (n *Node) bounded(ctx context.Context, f func(context.Context) (any, error)) (any, error) {
	if ctx.Done() == nil {
		return f(ctx)
	}
	c := calls.Get().(*call)
	c.f, c.ctx = f, ctx
	go c.start()
	select {
	case <-c.done:
		reply, err := c.reply, c.err
		c.f, c.ctx, c.reply, c.err = nil, nil, nil, nil
		calls.Put(c)
		return reply, err
	case <-ctx.Done():
		return nil, context.Cause(ctx) // c is not used again: f may yet write to it
	}
}

// call is a function that somebody else calls for us, and its result.
type call struct {
	f     func(context.Context) (any, error)
	ctx   context.Context
	reply any
	err   error
	done  chan struct{} // gets one signal for each call
	start func()        // run, made once
}

var calls = sync.Pool{New: func() any {
	c := &call{done: make(chan struct{}, 1)}
	c.start = c.run
	return c
}}

func (c *call) run() {
	c.reply, c.err = c.f(c.ctx)
	c.done <- struct{}{}
}
