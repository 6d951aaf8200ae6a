package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// keep puts the attempt's key anew, on a lease of its own, and reports whether it is there.
// The key keeps its create revision, and so its place: waiters, a Mutex too, stand behind it
// as before. If it was put anew already, by an earlier request without an answer, nothing
// changes. All requests for an attempt have one lease, or a refusal that lasts would leave
// one each time. An answer that is lost may leave a lease without a key, until that ends.
//
// The lease is for the case that this process ends. It counts from its grant, which comes
// after the call and so is not too early, and in whole seconds, from the servers' limit on.
func (s *store) keep(ctx context.Context, a *attempt, keep time.Duration) (kept bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if a.kept == clientv3.NoLease {
		lease, err := s.client.Grant(ctx, int64((keep+time.Second-1)/time.Second))
		if err != nil {
			return false, s.explain(ctx, err)
		}
		a.kept = lease.ID
	}
	ops := append(s.mark(a), clientv3.OpPut(a.key, a.req.Holder, clientv3.WithLease(a.kept)))
	resp, err := s.client.Txn(ctx).If(asPut(a.key, a.place)).Then(ops...).Else(clientv3.OpGet(a.key)).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // the next request gets another
		a.kept = clientv3.NoLease
		return false, err
	case err != nil:
		return false, s.explain(ctx, err)
	case !resp.Succeeded && first(resp, 0).GetLease() != int64(a.kept):
		_ = s.revoke(ctx, a.kept) // else it ends by itself
		return false, nil
	}
	a.there, a.unsure = false, false
	id := a.kept
	time.AfterFunc(keep, func() { // the key ends with the lease, on which nothing else is; if this fails, or the Locker is closed before, the servers end it
		if s.locks.Closing().Err() == nil {
			s.locks.Go(func() { s.locks.Persist(func(ctx context.Context) error { return s.revoke(ctx, id) }) })
		}
	})
	return true, nil
}
