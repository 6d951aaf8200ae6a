package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Inspect implements [locker.Inspector]. It does not know the token of a last
// holder that has gone.
func (l *Locker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	info := locker.Info{Name: name}
	if err := locker.CheckName(name); err != nil {
		return info, err
	}
	resp, err := l.client.Get(ctx, l.folder(name), clientv3.WithFirstCreate()...)
	if err != nil {
		return info, fmt.Errorf("etcd: inspect %q: %w", name, unavailable(ctx, err))
	}
	if len(resp.Kvs) == 0 {
		return info, nil
	}
	oldest := resp.Kvs[0]
	info.Held = true
	info.Holder = holderOf(oldest.Value)
	info.Token = fencing.Token(oldest.ModRevision)
	info.Waiters = int(resp.Count) - 1
	if oldest.Lease == 0 {
		return info, nil // somebody's key without an end
	}
	left, err := l.client.TimeToLive(ctx, clientv3.LeaseID(oldest.Lease))
	if err != nil {
		return info, fmt.Errorf("etcd: inspect %q: %w", name, unavailable(ctx, err))
	}
	info.TimeLeft = max(0, time.Duration(left.TTL)*time.Second)
	return info, nil
}

// Break implements [locker.Breaker]. It deletes the holder's key; the holder finds
// out at its next renewal, after a third of its TTL at the latest.
func (l *Locker) Break(ctx context.Context, name string) (bool, error) {
	if err := locker.CheckName(name); err != nil {
		return false, err
	}
	resp, err := l.client.Get(ctx, l.folder(name), clientv3.WithFirstCreate()...)
	if err != nil {
		return false, fmt.Errorf("etcd: break %q: %w", name, unavailable(ctx, err))
	}
	if len(resp.Kvs) == 0 {
		return false, nil
	}
	key := string(resp.Kvs[0].Key)
	done, err := l.client.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(key), "=", resp.Kvs[0].CreateRevision), // of whichever goroutine by now
	).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return false, fmt.Errorf("etcd: break %q: %w", name, unavailable(ctx, err))
	}
	return done.Succeeded, nil
}
