package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stream is what a session is renewed on. It is kept from one renewal to the next, because
// a client that has a password sends it for each stream that it opens, and to check it
// keeps a server busy for 50 ms and more.
type stream struct {
	etcdserverpb.Lease_LeaseKeepAliveClient
	end context.CancelFunc
}

// askForTTL does what the client's KeepAliveOnce does, which opens a stream each time, and
// while servers refuse asks again and again without a pause; the driver knows when to ask
// again.
func (s *store) askForTTL(ctx context.Context, n *session) error {
	var ttl int64
	var err error
	kept := n.renewals.Swap(nil) // nil, too, while another renewal uses it
	if kept != nil {
		ttl, err = kept.ask(ctx, n)
	}
	if kept == nil || err != nil && ctx.Err() == nil { // it may have broken since the last renewal
		ttl, err = s.askOnNewStream(ctx, n)
	}
	switch {
	case err != nil:
		return clientv3.ContextError(ctx, err)
	case ttl <= 0:
		return rpctypes.ErrLeaseNotFound
	case time.Duration(ttl)*time.Second < n.ttl:
		return fmt.Errorf("the servers have renewed a lease of %v for %ds only", n.ttl, ttl)
	}
	return nil
}

// askOnNewStream opens a stream that may last as long as the session, in nobody's context.
// The first renewal may come before the session has been noted.
func (s *store) askOnNewStream(ctx context.Context, n *session) (ttl int64, err error) {
	select {
	case <-n.opened:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	own, end := context.WithCancel(n.Context())
	stop := context.AfterFunc(ctx, end)
	opened, err := clientv3.RetryLeaseClient(s.client).LeaseKeepAlive(own)
	stop()
	if err != nil {
		end()
		return 0, err
	}
	return (&stream{opened, end}).ask(ctx, n)
}

// ask asks for another TTL. A stream that has answered is kept for the next renewal; any
// other ends here, for its answer may still come and must not be taken for the next one.
func (r *stream) ask(ctx context.Context, n *session) (ttl int64, err error) {
	stop := context.AfterFunc(ctx, r.end)
	_ = r.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(n.id)}) // Recv says why it failed
	resp, err := r.Recv()
	if !stop() || err != nil || !n.renewals.CompareAndSwap(nil, r) {
		r.end()
	}
	return resp.GetTTL(), err
}
