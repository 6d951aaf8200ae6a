package etcd

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// get reads keys from a majority.
func (s *store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := insist(ctx, firstTry, func(ctx context.Context) (*clientv3.GetResponse, error) { return s.client.Get(ctx, key, opts...) })
	return resp, s.explain(ctx, err)
}

// Inspect implements [locker.Inspector].
func (s *store) Inspect(ctx context.Context, name string) (locker.Info, error) {
	q, err := s.queue(ctx, name)
	if err != nil || q == nil {
		return locker.Info{}, err
	}
	return s.info(ctx, name, q, make(map[int64]time.Duration, 1))
}

// Break implements [driver.Breaker].
func (s *store) Break(ctx context.Context, name string, number locker.Number) (bool, error) {
	q, err := s.queue(ctx, name)
	if err != nil || q == nil {
		return false, err
	}
	return s.free(ctx, slices.DeleteFunc(q.holders(), func(kv *mvccpb.KeyValue) bool {
		token, _ := firstToken(kv.CreateRevision)
		return number != 0 && locker.Number(token) != number
	}))
}

// free deletes keys, unless they were deleted and put again since they were read, as a
// Mutex does it, and reports whether there were any.
func (s *store) free(ctx context.Context, keys []*mvccpb.KeyValue) (freed bool, err error) {
	for chunk := range slices.Chunk(keys, mostOps) {
		ops := make([]clientv3.Op, len(chunk))
		for i, kv := range chunk {
			key := string(kv.Key)
			ops[i] = clientv3.OpTxn([]clientv3.Cmp{putAt(key, kv.CreateRevision)}, []clientv3.Op{clientv3.OpDelete(key)}, nil)
		}
		done, err := insist(ctx, onlyTry, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return s.client.Txn(ctx).Then(ops...).Commit()
		})
		if err != nil {
			return freed, s.explain(ctx, err)
		}
		for _, r := range done.Responses {
			freed = freed || r.GetResponseTxn().GetSucceeded()
		}
	}
	return freed, nil
}

// List implements [locker.Lister].
func (s *store) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	queues, err := s.scan(ctx, s.prefix+escape.Replace(prefix))
	if err != nil {
		return nil, err
	}
	infos := make([]locker.Info, 0, len(queues))
	ends := make(map[int64]time.Duration)
	for name, q := range queues {
		info, err := s.info(ctx, name, q, ends)
		if err != nil {
			return nil, err
		}
		if info.Held {
			infos = append(infos, info)
		}
	}
	return infos, nil
}

// queue is what the keys of a name are.
type queue struct {
	keys      int
	exclusive *mvccpb.KeyValue   // the oldest
	beside    []*mvccpb.KeyValue // those of readers, and of who has a slot
}

// holders returns the keys of those who hold the lock: all that are older than the oldest
// exclusive one, or that one alone.
func (q *queue) holders() []*mvccpb.KeyValue {
	if q.exclusive == nil {
		return q.beside // all who wait wait for a slot
	}
	older := slices.DeleteFunc(slices.Clone(q.beside), func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision > q.exclusive.CreateRevision })
	if len(older) == 0 {
		return []*mvccpb.KeyValue{q.exclusive}
	}
	return older
}

// info is what the keys of a name say about its holders. The time left of a lease is
// asked for once, and kept in ends.
func (s *store) info(ctx context.Context, name string, q *queue, ends map[int64]time.Duration) (locker.Info, error) {
	holders := q.holders()
	info := locker.Info{Name: name, Held: len(holders) > 0, Waiters: q.keys - len(holders)}
	for _, kv := range holders {
		number, err := firstToken(kv.CreateRevision)
		if err != nil {
			return info, err
		}
		left, err := s.timeLeft(ctx, kv.Lease, ends)
		if err != nil {
			return info, err
		}
		info.TimeLeft = max(info.TimeLeft, left)
		if r := roleOf(kv.Key); r.kind != locker.KindExclusive {
			info.Kind, info.Slots = r.kind, r.slots
			info.Holders = append(info.Holders, locker.Holder{Text: string(kv.Value), Number: locker.Number(number), Slot: r.slot, TimeLeft: left})
			continue
		}
		info.Token = fencing.Token(number)
		if lease, _, ok := strings.Cut(path.Base(string(kv.Key)), "-"); ok { // a Mutex's has the lease alone
			info.Holder = string(kv.Value)
			info.Kept = lease != strconv.FormatInt(kv.Lease, 16) // it was put anew ([store.keep])
		}
	}
	slices.SortFunc(info.Holders, func(a, b locker.Holder) int { return cmp.Compare(a.Number, b.Number) })
	return info, nil
}

// timeLeft is the time left of a lease, or 0 if there is none: somebody's key without an end.
func (s *store) timeLeft(ctx context.Context, lease int64, ends map[int64]time.Duration) (time.Duration, error) {
	if left, known := ends[lease]; known || lease == 0 {
		return left, nil
	}
	resp, err := insist(ctx, firstTry, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return s.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	})
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	ends[lease] = max(0, time.Duration(resp.TTL)*time.Second)
	return ends[lease], nil
}

// queue reads the keys of a name. It is nil if there are none.
func (s *store) queue(ctx context.Context, name string) (*queue, error) {
	queues, err := s.scan(ctx, s.folder(name))
	return queues[name], err
}

// page is how many keys are read at a time.
const page = 1000

// scan reads the keys that begin with a prefix, as they were at one revision of the store.
func (s *store) scan(ctx context.Context, prefix string) (map[string]*queue, error) {
	from, upTo := prefix, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))
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
	return queues, nil
}

// note adds a key to its queue, if it is in one.
func (s *store) note(queues map[string]*queue, kv *mvccpb.KeyValue) {
	name, ok := s.nameOf(string(kv.Key))
	if !ok {
		return
	}
	q := queues[name]
	if q == nil {
		q = &queue{}
		queues[name] = q
	}
	q.keys++
	switch r := roleOf(kv.Key); {
	case r.kind == locker.KindShared, r.slot >= 0:
		q.beside = append(q.beside, kv)
	case r.kind == locker.KindSlots: // who waits for one
	case q.exclusive == nil || kv.CreateRevision < q.exclusive.CreateRevision:
		q.exclusive = kv
	}
}
