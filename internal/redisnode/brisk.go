package redisnode

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/fencing"
)

// briskTime bounds a read of ReleaseHere. It is a little less than the two
// seconds for which an Unlock may wait.
const briskTime = 1900 * time.Millisecond

// newBrisk returns a client on the connections of rdb that gives up a read after
// briskTime. That of a Cluster cannot be told to.
func newBrisk(rdb redis.UniversalClient) *redis.Client {
	client, ok := rdb.(*redis.Client)
	if !ok || client == nil {
		return nil
	}
	limit := briskTime
	if own := client.Options().ReadTimeout; own > 0 {
		limit = min(limit, own)
	}
	return client.WithTimeout(limit)
}

// ReleaseHere is Release for a ctx that nothing but its deadline ends, and which
// has not begun to run out. It spares the second goroutine that watches ctx: to
// hand a request over to another and its reply back takes about as long as the
// request itself where the server shares our cores. Instead the read ends by a
// timeout of its own.
//
// That bounds one request on a connection that is there. Without an idle one it
// is Release. Where the last one is snatched away in between, ctx still bounds
// the wait for another and the dialling of it; only the greeting on it is bounded
// message by message.
func (n *Node) ReleaseHere(ctx context.Context, l, next *Lease, yield bool) (fencing.Token, error) {
	req := n.releaseRequest(l, next, yield)
	repeated := false
	if n.idle(ctx, briskTime) {
		reply, err := process(ctx, n.brisk, req.bySum(ctx))
		switch {
		case err != nil && redis.HasErrorPrefix(err, "NOSCRIPT"):
		case broken(err):
			repeated = true
		default:
			return released(next, reply, false, classify(err))
		}
	}
	reply, again, err := n.send(ctx, req)
	return released(next, reply, repeated || again, err)
}

// idle reports whether a request that takes so long at most can be sent at once
// and be over before the deadline of ctx.
func (n *Node) idle(ctx context.Context, limit time.Duration) bool {
	end, ok := ctx.Deadline()
	return n.brisk != nil && (!ok || time.Until(end) >= limit) && n.brisk.PoolStats().IdleConns > 0
}
