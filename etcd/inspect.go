package etcd

import (
	"cmp"
	"context"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// get reads keys from a majority.
func (s *store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (resp *clientv3.GetResponse, err error) {
	err = insist(ctx, firstTry, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, key, opts...)
		return err
	})
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return resp, nil
}

// Inspect implements [locker.Inspector].
func (s *store) Inspect(ctx context.Context, name string) (locker.Info, error) {
	resp, err := s.get(ctx, s.folder(name), clientv3.WithFirstCreate()...)
	if err != nil || len(resp.Kvs) == 0 {
		return locker.Info{}, err
	}
	info, err := s.info(ctx, resp.Kvs[0], make(map[int64]time.Duration, 1))
	info.Waiters = int(resp.Count) - 1
	return info, err
}

// info is what the oldest key of a name says about its holder. The time left of a lease is
// asked for once, and kept in ends.
func (s *store) info(ctx context.Context, oldest *mvccpb.KeyValue, ends map[int64]time.Duration) (locker.Info, error) {
	info := locker.Info{Held: true}
	if strings.Contains(path.Base(string(oldest.Key)), "-") { // a Mutex's has the lease alone
		info.Holder = string(oldest.Value)
	}
	token, err := firstToken(oldest.CreateRevision)
	info.Token = fencing.Token(token)
	if err != nil || oldest.Lease == 0 {
		return info, err // somebody's key without an end
	}
	if _, known := ends[oldest.Lease]; !known {
		err = insist(ctx, firstTry, func(ctx context.Context) error {
			resp, err := s.client.TimeToLive(ctx, clientv3.LeaseID(oldest.Lease))
			if err == nil {
				ends[oldest.Lease] = max(0, time.Duration(resp.TTL)*time.Second)
			}
			return err
		})
	}
	if err != nil {
		return info, s.explain(ctx, err)
	}
	info.TimeLeft = ends[oldest.Lease]
	return info, nil
}

// Break implements [locker.Breaker].
func (s *store) Break(ctx context.Context, name string, tokens ...uint64) (bool, error) {
	resp, err := s.get(ctx, s.folder(name), oldest...)
	if err != nil || len(resp.Kvs) == 0 {
		return false, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	key := string(resp.Kvs[0].Key)
	done, err := s.client.Txn(ctx).If(putAt(key, resp.Kvs[0].CreateRevision)).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return false, s.explain(ctx, err)
	}
	return done.Succeeded, nil
}

// page is how many keys List reads at a time.
const page = 1000

// queue is what List has seen of a name.
type queue struct {
	oldest *mvccpb.KeyValue
	keys   int
}

// List implements [locker.Lister].
func (s *store) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	from := s.prefix + escape.Replace(prefix)
	upTo := clientv3.WithRange(clientv3.GetPrefixRangeEnd(from))
	queues := make(map[string]*queue)
	revision := int64(0) // of the first page, and so of all
	for more := true; more; {
		resp, err := s.get(ctx, cmp.Or(from, "\x00"), upTo, clientv3.WithLimit(page), clientv3.WithRev(revision))
		if err != nil {
			return nil, err
		}
		revision = cmp.Or(revision, resp.Header.Revision)
		for _, kv := range resp.Kvs {
			s.note(queues, kv)
			from = string(kv.Key) + "\x00" // the next one
		}
		more = resp.More
	}
	infos := make([]locker.Info, 0, len(queues))
	ends := make(map[int64]time.Duration)
	for name, q := range queues {
		info, err := s.info(ctx, q.oldest, ends)
		if err != nil {
			return nil, err
		}
		info.Name, info.Waiters = name, q.keys-1
		infos = append(infos, info)
	}
	return infos, nil
}

// note adds a key to its queue, if it is in one.
func (s *store) note(queues map[string]*queue, kv *mvccpb.KeyValue) {
	name, ok := s.nameOf(string(kv.Key))
	if !ok {
		return
	}
	q := queues[name]
	if q == nil {
		q = &queue{oldest: kv}
		queues[name] = q
	}
	if q.keys++; kv.CreateRevision < q.oldest.CreateRevision {
		q.oldest = kv
	}
}
