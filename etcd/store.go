package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
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

	mu       sync.Mutex
	sessions map[time.Duration]*session // by TTL: the ones for new attempts
}

// attempt is one attempt at a name, and the hold that comes of it; or it stands for its
// session, which the driver renews and ends like a lock.
type attempt struct {
	req    *locker.Request // nil for a session
	folder string
	number string // no other attempt of this Locker has it

	session *session
	id      string // nobody else's: it has the session's lease and the number
	key     string // ends with the id
	place   int64  // the revision at which the key was put
	there   bool   // the key is: we have heard it
	unsure  bool   // a request was not answered: what it puts may be there, or come

	keepEnd locker.Instant   // of WithMinHold, if there was some left when it was released
	kept    clientv3.LeaseID // what keeps the key until then, or 0: nothing has been asked to
}

func (s *store) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks,
		Tokens:    0,
		Fair:      true,
		Keeps:     true,
		Shared:    true,
		Release:   locker.BySession,
		Tolerates: max(0, len(s.client.Endpoints())-1) / 2,
	}
}

// Begin refuses a TTL that etcd would round. The servers' floor is known when a lease
// is asked for.
func (s *store) Begin(req *locker.Request) (*attempt, error) {
	if req.TTL%time.Second != 0 {
		return nil, fmt.Errorf("ttl %v is not a whole number of seconds, in which etcd counts", req.TTL)
	}
	return &attempt{req: req, folder: s.folder(req.Name), number: strconv.FormatUint(s.count.Add(1), 36)}, nil
}

func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	grant, err := s.acquire(ctx, a, wait)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) { // it had ended unheard: on a new one
		grant, err = s.acquire(ctx, a, wait)
	}
	return grant, err
}

func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	if err := s.join(ctx, a); err != nil {
		return driver.Grant{}, err
	}
	since := locker.Now() // what the session counts from it knows itself
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
	return driver.Grant{First: token, Count: tokens, Since: since, Session: a.session}, err
}

// newest and oldest are the options of a read that finds the last or the first in
// the queue.
var (
	newest = append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())
	oldest = append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())
)

// ask puts the attempt's key at the end of the queue, and returns the key that is ahead
// of it; if that is "", the lock is a's. With once set, it puts the key only where no rival
// is.
//
// One transaction puts the key and looks who came before, so nobody can come between.
// It is void if the attempt was withdrawn, which is how a clean-up stops requests that
// are still on their way, and if the key is there: a request that is sent again gets
// the place of the first.
func (s *store) ask(ctx context.Context, a *attempt, once bool) (ahead string, err error) {
	put := clientv3.OpPut(a.key, a.req.Holder, clientv3.WithLease(a.session.id))
	free := []clientv3.Cmp{putAt(s.markOf(a), 0), putAt(a.key, 0)}
	var then, otherwise []clientv3.Op
	if once {
		free = append(free, a.rivals().none())
		then, otherwise = []clientv3.Op{put}, []clientv3.Op{clientv3.OpGet(a.key), a.rivals().find(oldest...)}
	} else {
		then, otherwise = []clientv3.Op{a.rivals().find(newest...), put}, []clientv3.Op{clientv3.OpGet(a.key)}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	before := a.unsure
	a.unsure = true
	resp, err := s.client.Txn(ctx).If(free...).Then(then...).Else(otherwise...).Commit()
	if err == nil || void(err) {
		a.unsure = before
	}
	if err != nil {
		return "", s.failed(ctx, a, err)
	}
	found := first(resp, 0)
	switch {
	case resp.Succeeded:
		a.place, a.there = resp.Header.Revision, true
		return string(found.GetKey()), nil
	case found != nil:
		a.place, a.there = found.CreateRevision, true
		return s.look(ctx, a)
	case once && first(resp, 1) != nil:
		return string(first(resp, 1).Key), nil
	}
	return "", errors.New("the attempt was withdrawn")
}

// look asks a majority who is ahead of the attempt's key.
func (s *store) look(ctx context.Context, a *attempt) (ahead string, err error) {
	before := a.rivals().find(slices.Concat(newest, []clientv3.OpOption{clientv3.WithMaxCreateRev(a.place - 1)})...)
	var resp *clientv3.TxnResponse
	err = insist(ctx, firstTry, func(ctx context.Context) (err error) {
		resp, err = s.client.Txn(ctx).If(putAt(a.key, a.place)).Then(before).Commit()
		return err
	})
	switch {
	case err != nil:
		return "", s.explain(ctx, err)
	case !resp.Succeeded: // by hand, or with the lease: the next request takes a new place
		a.there = false
		return "", errors.New("the place in the queue was deleted")
	}
	return string(first(resp, 0).GetKey()), nil
}

// failed explains an error of the servers. Without the lease there is nothing on it, and
// will be nothing.
func (s *store) failed(ctx context.Context, a *attempt, err error) error {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return s.explain(ctx, err)
	}
	a.there, a.unsure = false, false
	a.session.Lose(locker.SessionEnded, err)
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
		return &locker.LostError{Reason: locker.SessionEnded}
	}
	return &locker.LostError{Reason: locker.TakenOver}
}

func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	if a.req != nil {
		_, err := s.giveBack(ctx, a)
		return err
	}
	err := s.revoke(ctx, a.session.id)
	a.unsure = err != nil
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
	a.session.marks.Add(1)
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

// clear sends one request, for an answer may never come.
func (s *store) clear(ctx context.Context, a *attempt) (found bool, err error) {
	if !a.unsure {
		resp, err := s.client.Delete(ctx, a.key)
		return err == nil && resp.Deleted > 0, err
	}
	resp, err := s.client.Txn(ctx).Then(append(s.mark(a), clientv3.OpDelete(a.key))...).Commit()
	return err == nil && resp.Responses[len(resp.Responses)-1].GetResponseDeleteRange().GetDeleted() > 0, err
}

func (s *store) Left(a *attempt) bool { return a.there || a.unsure }

// End leaves the session, or ends its stream. What is left on a session that has ended goes
// with its lease. A session that nobody uses may end: not while a lock is on it that was to
// be kept, and could not be put on a lease of its own.
func (s *store) End(a *attempt) {
	switch {
	case a.session == nil:
		return
	case a.req == nil:
		if r := <-a.session.renewals; r != nil {
			r.end()
		}
		return
	}
	if keep := a.keepEnd.Sub(s.locks.Now()); keep > 0 && s.Left(a) {
		time.AfterFunc(keep, a.session.Leave) // it is all that keeps the lock
	} else {
		a.session.Leave()
	}
	if a.session.Context().Err() == nil {
		s.locks.Finish(a)
	}
}
