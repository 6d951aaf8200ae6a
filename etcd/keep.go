package etcd

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keep puts the attempt's key anew, on a lease of its own, and reports whether it is there.
// The key keeps its create revision, and so its place: waiters, a Mutex too, stand behind it
// as before. If it was put anew already, by an earlier request without an answer, nothing
// changes. An answer that is lost may leave a lease without a key, until that ends.
//
// The lease is for the case that this process ends. It counts from its grant, which comes
// after the call and so is not too early, and in whole seconds, from the servers' limit on.
func (s *store) keep(ctx context.Context, a *attempt, keep time.Duration) (kept bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	lease, err := s.client.Grant(ctx, int64((keep+time.Second-1)/time.Second))
	if err != nil {
		return false, s.explain(ctx, err)
	}
	a.kept = append(a.kept, lease.ID)
	ops := append(s.mark(a), clientv3.OpPut(a.key, a.req.Holder, clientv3.WithLease(lease.ID)))
	resp, err := s.client.Txn(ctx).If(asPut(a.key, a.place)).Then(ops...).Else(clientv3.OpGet(a.key)).Commit()
	id := lease.ID
	switch {
	case err != nil:
		return false, s.explain(ctx, err)
	case !resp.Succeeded:
		_ = s.revoke(ctx, lease.ID) // else it ends by itself
		if id = clientv3.LeaseID(first(resp, 0).GetLease()); !slices.Contains(a.kept, id) {
			return false, nil
		}
	}
	a.there, a.unsure = false, false
	s.endKeep(id, keep)
	return true, nil
}

// endKeep ends the lease of a key that is kept, and with it the key, when keep has passed.
// Nothing else is on it. If that fails, or the Locker is closed before, the servers end it.
func (s *store) endKeep(id clientv3.LeaseID, keep time.Duration) {
	time.AfterFunc(keep, func() {
		if s.locks.Closing().Err() == nil {
			s.locks.Go(func() { s.locks.Persist(func(ctx context.Context) error { return s.revoke(ctx, id) }) })
		}
	})
}
