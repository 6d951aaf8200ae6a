package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// store is the [driver.Store].
type store struct {
	client *clientv3.Client
	prefix string
	locks  *driver.Locker[*attempt]
	count  atomic.Uint64 // of attempts

	sessions *driver.Pool[*attempt, time.Duration, *session] // by TTL
}

// attempt is one attempt at a name, and the hold that comes of it.
type attempt struct {
	req    *driver.Request
	folder string

	session *session
	id      string // nobody else's: it has the session's lease and a number
	key     string // ends with the id
	place   int64  // the revision at which the key was put
	slot    int
	there   bool // the key is: we have heard it
	unsure  bool // a request was not answered: what it puts may be there, or come

	keepEnd driver.Instant   // of WithMinHold, if there was some left when it was released
	kept    clientv3.LeaseID // what keeps the key until then, or 0: nothing has been asked to
}

func (s *store) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		Exclusion:      locker.PromptHolder | locker.SteadyClocks,
		Tokens:         0,
		Fair:           true,
		KeepsMinHold:   true,
		Shared:         true,
		Slots:          true,
		FreedBy:        locker.FreedBySession,
		ServerFailures: max(0, len(s.client.Endpoints())-1) / 2,
	}
}

// Begin refuses a TTL that etcd would round. The servers' floor is known when a lease
// is asked for.
func (s *store) Begin(req *driver.Request) (*attempt, error) {
	if req.TTL%time.Second != 0 {
		return nil, fmt.Errorf("ttl %v is not a whole number of seconds, in which etcd counts", req.TTL)
	}
	return &attempt{req: req, folder: s.folder(req.Name)}, nil
}

func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	grant, err := s.acquire(ctx, a, wait)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) { // it had ended unheard: on a new one
		grant, err = s.acquire(ctx, a, wait)
	}
	return grant, driver.UnsureIf(a.left()), err
}

// left reports whether there may be a key of the attempt's.
func (a *attempt) left() bool { return a.there || a.unsure }

func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	if err := s.join(ctx, a); err != nil {
		return driver.Grant{}, err
	}
	since := driver.Now() // what the session counts from it knows itself
	ahead, err := s.ask(ctx, a, wait == nil)
	for err == nil && ahead != "" {
		if wait == nil {
			return driver.Grant{}, nil
		}
		ctx = wait()
		since, ahead, err = s.follow(ctx, a, ahead)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	token, err := firstToken(a.place)
	return driver.Grant{First: token, Count: a.req.Tokens(tokens), Slot: a.slot, Since: since}, err
}

// newest and oldest are reads that find the last or the first in the queue, and before is one
// that finds the last in front of a place.
var (
	newest = clientv3.OpGet("\x00", append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())...)
	oldest = clientv3.OpGet("\x00", append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...)
)

func before(place int64) clientv3.Op {
	return clientv3.OpGet("\x00", append(clientv3.WithLastCreate(), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(place-1))...)
}

// ask puts the attempt's key at the end of the queue, and returns the key that is ahead
// of it; if that is "", the lock is a's. With once set, it puts the key only where no rival
// is.
//
// One transaction puts the key and looks who came before, so nobody can come between.
// It is void if the attempt was withdrawn, which is how a clean-up stops requests that
// are still on their way, and if the key is there: a request that is sent again gets
// the place of the first.
func (s *store) ask(ctx context.Context, a *attempt, once bool) (ahead string, err error) {
	if a.req.Kind == locker.KindSlots {
		return s.take(ctx, a, once)
	}
	put := clientv3.OpPut(a.key, a.req.Holder, clientv3.WithLease(a.session.id))
	none, then := span{from: a.folder + slotDir}, []clientv3.Op{a.rivals().find(newest), put}
	if once {
		none, then = a.rivals(), []clientv3.Op{put}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	resp, err := a.commit(s.client.Txn(ctx).If(putAt(s.markOf(a), 0), putAt(a.key, 0), none.none()).Then(then...).Else(none.find(oldest)))
	if err != nil {
		return "", s.failed(ctx, a, err)
	}
	found := first(resp, 0)
	if resp.Succeeded {
		a.place, a.there = resp.Header.Revision, true
		return string(found.GetKey()), nil
	}
	if found == nil || string(found.Key) == a.key {
		return s.askedBefore(ctx, a)
	}
	if r := roleOf(found.Key); r.kind == locker.KindSlots {
		return "", driver.Mismatch(a.req, r.kind, r.slots)
	}
	return string(found.Key), nil
}

// commit sends what may put a key of the attempt's. What it does is in doubt until the servers
// have answered that, or have said that they did nothing.
func (a *attempt) commit(txn clientv3.Txn) (*clientv3.TxnResponse, error) {
	before := a.unsure
	a.unsure = true // also if an interceptor of the client's panics
	resp, err := txn.Commit()
	if err == nil || void(err) {
		a.unsure = before
	}
	return resp, err
}

// askedBefore finds the place that an earlier request of the attempt has got.
func (s *store) askedBefore(ctx context.Context, a *attempt) (ahead string, err error) {
	own, err := s.get(ctx, a.key)
	switch {
	case err != nil:
		return "", err
	case len(own.Kvs) == 0:
		return "", errWithdrawn
	}
	a.place, a.there = own.Kvs[0].CreateRevision, true
	return s.look(ctx, a, "")
}

var (
	errWithdrawn = errors.New("the attempt was withdrawn")
	errDeleted   = errors.New("the place in the queue was deleted")
)

// look asks a majority who is ahead of the attempt's key. Who was ahead is still, if its key has not been
// deleted: then the servers read two keys, and not the queue. A Mutex that has been there before
// may be behind by now, with the same key.
func (s *store) look(ctx context.Context, a *attempt, was string) (ahead string, err error) {
	if a.req.Kind == locker.KindSlots {
		return s.take(ctx, a, false)
	}
	was = cmp.Or(was, a.key) // which is not ahead of itself
	own, read := clientv3.OpGet(a.key, clientv3.WithKeysOnly()), a.rivals().find(before(a.place))
	resp, err := insist(ctx, firstTry, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).If(putAt(a.key, a.place), clientv3.Compare(clientv3.CreateRevision(was), ">", 0),
			clientv3.Compare(clientv3.CreateRevision(was), "<", a.place)).Else(own, read).Commit()
	})
	switch {
	case err != nil:
		return "", s.explain(ctx, err)
	case resp.Succeeded:
		return was, nil
	case first(resp, 0).GetCreateRevision() != a.place: // deleted by hand, or with the lease: the next request takes a new place
		a.there = false
		return "", errDeleted
	}
	return string(first(resp, 1).GetKey()), nil
}

// failed explains an error of the servers. Without the lease there is nothing on it, and
// will be nothing.
func (s *store) failed(ctx context.Context, a *attempt, err error) error {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return s.explain(ctx, err)
	}
	a.there, a.unsure = false, false
	a.session.Lose(locker.ReasonSessionEnded, err)
	return err
}

func (s *store) Release(ctx context.Context, a *attempt, keep time.Duration) error {
	if keep > 0 && a.keepEnd == 0 { // the lease is for the first
		a.keepEnd = s.locks.Now().Add(keep)
	}
	found, err := s.giveBack(ctx, a)
	switch {
	case err != nil || found:
		return err
	case a.session.Context().Err() != nil:
		return &locker.LostError{Reason: locker.ReasonSessionEnded}
	}
	return &locker.LostError{Reason: locker.ReasonTakenOver}
}

func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	if !a.left() { // it may have no key at all
		return nil
	}
	_, err := s.giveBack(ctx, a)
	return err
}

// giveBack deletes the attempt's key, which is nobody else's, or keeps it, and reports
// whether it was there.
func (s *store) giveBack(ctx context.Context, a *attempt) (found bool, err error) {
	if keep := a.keepEnd.Sub(s.locks.Now()); keep > 0 {
		if kept, err := s.keep(ctx, a, keep); kept || err != nil {
			return kept, err
		}
	}
	return s.remove(ctx, a)
}

// markOf is the key that makes void what an attempt has sent. It hangs on the session's
// lease, as what is on its way would: when that has ended, everything on it is void.
func (s *store) markOf(a *attempt) string { return s.prefix + marks + a.id }

// mark leaves a mark where a request that puts the attempt's key may still be on its way.
func (s *store) mark(a *attempt) []clientv3.Op {
	if !a.unsure {
		return nil
	}
	if a.session.marks.Add(1) == mostMarks {
		s.sessions.Retire(a.req.TTL, a.session.Session)
	}
	return []clientv3.Op{clientv3.OpPut(s.markOf(a), "", clientv3.WithLease(a.session.id))}
}

// remove deletes the attempt's key, and reports whether it was there.
func (s *store) remove(ctx context.Context, a *attempt) (found bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found, err = s.clear(ctx, a)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		_ = s.failed(ctx, a, err)
		return false, nil
	case err != nil:
		return false, s.explain(ctx, err)
	}
	a.there, a.unsure = false, false
	return found, nil
}

// clear sends one request, for an answer may never come. If a request for one of many slots
// was not answered, it takes several to delete all keys that may be there.
func (s *store) clear(ctx context.Context, a *attempt) (found bool, err error) {
	if !a.unsure {
		resp, err := s.client.Delete(ctx, a.key)
		return err == nil && resp.Deleted > 0, err
	}
	ops := s.mark(a)
	for keys := range slices.Chunk(a.keys(), mostOps) {
		for _, key := range keys {
			ops = append(ops, clientv3.OpDelete(key))
		}
		resp, err := s.client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return found, err
		}
		for _, r := range resp.Responses {
			found = found || r.GetResponseDeleteRange().GetDeleted() > 0
		}
		ops = nil
	}
	return found, nil
}

// keys are all that an attempt may have, if a request was not answered.
func (a *attempt) keys() []string {
	keys := []string{a.key}
	if a.req.Kind == locker.KindSlots {
		for k := range a.req.Slots {
			keys = append(keys, a.pool()+strconv.Itoa(k)+"-"+a.id)
		}
	}
	return keys
}
