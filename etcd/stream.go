package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/driver"
)

// stream is what a session is renewed on. It is kept from one renewal to the next, because
// a client that has a password sends it for each stream that it opens, and to check it
// keeps a server busy for 50 ms and more.
type stream struct {
	etcdserverpb.Lease_LeaseKeepAliveClient
	end context.CancelFunc
}

// askForTTL renews a session on its stream. A program may renew a thousand locks at once, so
// one renewal at a time asks, and the others wait: one request that was sent after they came
// answers all of them. A renewal that has no answer in time does not keep the next from
// asking, on another stream, which may be to another server.
func (s *store) askForTTL(ctx context.Context, n *session) error {
	came := driver.Now()
	var r *stream
	select {
	case r = <-n.renewals:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	late := time.AfterFunc(n.patience(), func() { n.renewals <- nil }) // or the client panics
	var err error
	if n.renewed.Load() < int64(came) {
		r, err = s.askOn(ctx, n, r)
	}
	switch {
	case late.Stop():
		if n.renewals <- r; n.Context().Err() != nil {
			n.endStream() // nobody else will
		}
	case r != nil:
		r.end()
	}
	return err
}

// askOn does what the client's KeepAliveOnce does, which opens a stream each time, and while
// servers refuse asks again and again without a pause; the driver knows when to ask again.
// It returns the stream that has answered, if one has.
func (s *store) askOn(ctx context.Context, n *session, r *stream) (*stream, error) {
	sent := driver.Now()
	var ttl int64
	var err error
	kept := r != nil
	if kept {
		ttl, err = r.ask(ctx, n.id)
	}
	if !kept || err != nil && ctx.Err() == nil { // it may have broken since the last renewal
		r, ttl, err = s.askOnNewStream(ctx, n.id)
	}
	switch {
	case err != nil:
		return nil, clientv3.ContextError(ctx, err)
	case ttl <= 0:
		return r, rpctypes.ErrLeaseNotFound
	case time.Duration(ttl)*time.Second < n.ttl:
		return r, fmt.Errorf("the servers have renewed a lease of %v for %ds only", n.ttl, ttl)
	}
	n.renewed.Store(int64(sent))
	return r, nil
}

// askOnNewStream opens a stream in nobody's context: it lasts until it is ended.
func (s *store) askOnNewStream(ctx context.Context, id clientv3.LeaseID) (r *stream, ttl int64, err error) {
	own, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	opened, err := clientv3.RetryLeaseClient(s.client).LeaseKeepAlive(own)
	stop()
	if err != nil {
		end()
		return nil, 0, err
	}
	r = &stream{opened, end}
	ttl, err = r.ask(ctx, id)
	return r, ttl, err
}

// ask asks for another TTL. A stream that has not answered ends here, for its answer may
// still come and must not be taken for the next one.
func (r *stream) ask(ctx context.Context, id clientv3.LeaseID) (ttl int64, err error) {
	stop := context.AfterFunc(ctx, r.end)
	_ = r.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv says why it failed
	resp, err := r.Recv()
	stop()
	if err != nil {
		r.end()
	}
	return resp.GetTTL(), err
}
