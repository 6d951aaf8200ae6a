package redisnode

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// hastyTime bounds a read of sendHere. The client reckons with a clock that
	// may be 50 ms old.
	hastyTime = 250 * time.Millisecond
	// promptTime is how fast a server answers that is asked by sendHere.
	promptTime = 10 * time.Millisecond
)

// sendHere is send for requests that may be repeated without harm. Where the
// server was prompt, it reads the first reply itself: nothing interrupts that
// read, so the end of ctx may go unnoticed for as long as hastyTime, but the
// second goroutine is spared that would watch ctx. To hand a request over to
// another and its reply back takes about as long as the request itself.
//
// A reply that takes longer breaks its connection. The request is sent again by
// send, and so are all others until one was answered promptly.
func (n *Node) sendHere(ctx context.Context, req request) (reply any, repeated bool, err error) {
	hasty := n.hasty.Load()
	if hasty == nil || ctx.Done() == nil || !n.idle(ctx, hastyTime) {
		begin := time.Now()
		reply, repeated, err = n.send(ctx, req)
		if err == nil && hasty == nil && time.Since(begin) < promptTime {
			n.hurry()
		}
		return reply, repeated, err
	}
	reply, err = process(ctx, hasty, req.bySum(ctx))
	switch {
	case err != nil && redis.HasErrorPrefix(err, "NOSCRIPT"):
		return n.send(ctx, req)
	case timedOut(err):
		n.hasty.Store(nil)
		fallthrough
	case broken(err):
		reply, _, err = n.send(ctx, req)
		return reply, true, err
	}
	return reply, false, classify(err)
}

// hurry has the next requests sent by sendHere, if they can be: the client of a
// Cluster cannot be told another timeout, and replicas need time.
func (n *Node) hurry() {
	client, ok := n.rdb.(*redis.Client)
	if !ok || client == nil || n.replicas > 0 || n.quorum {
		return
	}
	limit := hastyTime
	if own := client.Options().ReadTimeout; own > 0 {
		limit = min(limit, own)
	}
	n.hasty.Store(client.WithTimeout(limit))
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
