package redisnode

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/fencing"
)

const (
	// askTime bounds a read of sendHere. The client reckons with a clock that
	// may be 50 ms old.
	askTime = 250 * time.Millisecond
	// giveTime bounds a read of ReleaseHere. It is a little less than the two
	// seconds for which an Unlock may wait.
	giveTime = 1900 * time.Millisecond
	// promptTime is how fast a server answers that is asked here.
	promptTime = 10 * time.Millisecond
)

// hasty is a server that was prompt. Requests whose context may end are sent to
// it by the caller's own goroutine: nothing interrupts the client in a read, so
// the end of the context may go unnoticed for a while, but the second goroutine
// is spared that would watch it. To hand a request over to another and its reply
// back takes about as long as the request itself.
//
// The wait for a connection and the dialling of one end with the context. Only
// the greeting on a new one is bounded message by message.
type hasty struct {
	ask, give *redis.Client // on the connections of the user's; they give up a read in time
}

// hurry has the next requests sent here, if they can be: the client of a Cluster
// cannot be told another timeout, and replicas need time.
func (n *Node) hurry() {
	client, ok := n.rdb.(*redis.Client)
	if !ok || client == nil || n.replicas > 0 || n.quorum {
		return
	}
	within := func(limit time.Duration) *redis.Client {
		if own := client.Options().ReadTimeout; own > 0 {
			limit = min(limit, own)
		}
		return client.WithTimeout(limit)
	}
	n.prompt.Store(&hasty{ask: within(askTime), give: within(giveTime)})
}

// sendHere is send for requests that may be repeated without harm. A reply that
// is not prompt breaks its connection: the request is sent again by send, and so
// are all others until one was answered promptly.
func (n *Node) sendHere(ctx context.Context, req request) (reply any, repeated bool, err error) {
	server := n.prompt.Load()
	if server == nil || ctx.Done() == nil || !leaves(ctx, askTime) {
		begin := time.Now()
		reply, repeated, err = n.send(ctx, req)
		if err == nil && server == nil && time.Since(begin) < promptTime {
			n.hurry()
		}
		return reply, repeated, err
	}
	reply, err = n.eval(ctx, server.ask, req)
	switch {
	case timedOut(err):
		n.prompt.Store(nil)
		fallthrough
	case broken(err):
		reply, _, err = n.send(ctx, req)
		return reply, true, err
	}
	return reply, false, classify(err)
}

// ReleaseHere is Release for a ctx that nothing but its deadline ends, and which
// has not begun to run out. A reply that is not prompt is waited for: a release
// that is repeated cannot tell whether the lock had been lost before.
func (n *Node) ReleaseHere(ctx context.Context, l, next *Lease, yield bool) (fencing.Token, error) {
	req := n.releaseRequest(l, next, yield)
	repeated := false
	if server := n.prompt.Load(); server != nil && leaves(ctx, giveTime) {
		reply, err := n.eval(ctx, server.give, req)
		if !broken(err) {
			return released(next, reply, false, classify(err))
		}
		repeated = true
	}
	reply, again, err := n.send(ctx, req)
	return released(next, reply, repeated || again, err)
}

// leaves reports whether ctx leaves a request so much time.
func leaves(ctx context.Context, limit time.Duration) bool {
	end, ok := ctx.Deadline()
	return !ok || time.Until(end) >= limit
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
