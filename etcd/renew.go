package etcd

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
)

// lease is what is renewed: a session, and a key that hangs on it unless it is
// the session itself.
type lease struct {
	session *session
	attempt *attempt
}

// renew is the Keeper's function. It asks twice for each session, at the same
// time, however many locks hang on it.
func (l *Locker) renew(ctx context.Context, leases []*lease) []error {
	groups := make(map[*session][]int)
	for i, le := range leases {
		groups[le.session] = append(groups[le.session], i)
	}
	errs := make([]error, len(leases))
	var wg sync.WaitGroup
	for s, group := range groups {
		wg.Go(func() {
			s.renew(ctx, leases, group, errs)
			s.endUnused(idleTTLs * s.ttl)
		})
	}
	wg.Wait()
	return errs
}

// renew renews the leases of one session: those whose indexes are in group.
func (s *session) renew(ctx context.Context, leases []*lease, group []int, errs []error) {
	var keys map[string]bool
	var lookErr error
	var wg sync.WaitGroup
	if len(group) > 1 || leases[group[0]].attempt != nil {
		wg.Go(func() { keys, lookErr = s.keys(ctx) })
	}
	_, err := s.keepAlive(ctx)
	wg.Wait()
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.gone(err)
		err = &locker.LostError{Reason: locker.SessionEnded, Cause: err}
	}
	for _, i := range group {
		a := leases[i].attempt
		switch {
		case err != nil || a == nil:
			errs[i] = err
		case lookErr != nil:
			errs[i] = lookErr
		case !keys[a.key]:
			errs[i] = a.confirm(ctx)
		}
	}
}

// keys asks for all keys that hang on the session.
func (s *session) keys(ctx context.Context) (map[string]bool, error) {
	var resp *clientv3.LeaseTimeToLiveResponse
	err := insist(ctx, s.patience(), func(ctx context.Context) (err error) {
		resp, err = s.owner.client.TimeToLive(ctx, s.id, clientv3.WithAttachedKeys())
		return err
	})
	if err != nil {
		return nil, err
	}
	keys := make(map[string]bool, len(resp.Keys))
	for _, key := range resp.Keys {
		keys[string(key)] = true
	}
	return keys, nil
}

// confirm looks at one key. The servers' list of keys may lag behind the grant,
// so that a key that is missing there proves nothing yet.
func (a *attempt) confirm(ctx context.Context) error {
	var resp *clientv3.GetResponse
	err := insist(ctx, a.session.patience(), func(ctx context.Context) (err error) {
		resp, err = a.kv().Get(ctx, a.key)
		return err
	})
	if err != nil {
		return err
	}
	if len(resp.Kvs) == 0 || resp.Kvs[0].ModRevision != a.mod {
		return &locker.LostError{Name: a.req.Name, Reason: locker.TakenOver}
	}
	return nil
}
