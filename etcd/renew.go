package etcd

import (
	"context"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// mostOps is how many keys one transaction looks at: servers take 128 operations,
// unless they are told otherwise.
const mostOps = 100

// Renew looks whether the keys are still there, with one request for each session that they are on,
// however many they are.
func (s *store) Renew(ctx context.Context, as []*attempt) []error {
	groups := make(map[*session][]int) // indexes into as
	for i, a := range as {
		groups[a.session] = append(groups[a.session], i)
	}
	errs := make([]error, len(as))
	var wg sync.WaitGroup
	for n, group := range groups {
		wg.Go(func() {
			if err := driver.Caught(func() error { return s.lookFor(ctx, n, as, group, errs) }); err != nil {
				for _, i := range group {
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	return errs
}

// lookFor looks whether the keys of locks on one session are there. A server's list of a
// lease's keys may lag behind the grant, so a key that is missing in it proves nothing
// yet: a majority is asked for that key.
func (s *store) lookFor(ctx context.Context, n *session, as []*attempt, locks []int, errs []error) error {
	listed, err := insist(ctx, n.patience(), func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return s.client.TimeToLive(ctx, n.id, clientv3.WithAttachedKeys())
	})
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(listed.Keys))
	for _, key := range listed.Keys {
		there[string(key)] = true
	}
	missing := slices.DeleteFunc(locks, func(i int) bool { return there[as[i].key] })
	reason := locker.ReasonTakenOver
	if listed.TTL < 0 { // there is no such lease
		reason = locker.ReasonSessionEnded
	}
	for chunk := range slices.Chunk(missing, mostOps) {
		s.confirm(ctx, n, as, chunk, errs, reason)
	}
	return nil
}

// confirm asks a majority for some keys. The locks whose keys are missing are lost for reason.
func (s *store) confirm(ctx context.Context, n *session, as []*attempt, locks []int, errs []error, reason locker.Reason) {
	reads := make([]clientv3.Op, len(locks))
	for j, i := range locks {
		reads[j] = clientv3.OpGet(as[i].key, clientv3.WithKeysOnly())
	}
	resp, err := insist(ctx, n.patience(), func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).Then(reads...).Commit()
	})
	for j, i := range locks {
		switch {
		case err != nil:
			errs[i] = err
		case first(resp, j).GetCreateRevision() != as[i].place:
			errs[i] = &locker.LostError{Reason: reason}
		}
	}
}
