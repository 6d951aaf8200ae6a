package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/line"
)

// mostTries bounds how often a place is asked for again because something of
// this process's past was in the way.
const mostTries = 10

// newest and oldest are the options of a read that finds the first or the last in
// the queue.
var (
	newest = append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())
	oldest = append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())
)

// attempt is one call of Lock or TryLock, and the hold that comes of it.
type attempt struct {
	req    *locker.Request
	turn   *line.Turn[*attempt]
	folder string // the prefix of the name's keys
	value  string // of our key: nobody else's

	former  *session // the last one that ended under us while we had something there
	session *session
	key     string
	place   int64 // create revision of our key, the place in the queue; 0: none
	mod     int64 // mod revision of our key, the token once granted
	granted bool
	asked   locker.Instant // before the request that was or may be granted, was sent
	since   locker.Instant // what validity counts from
	doubt   bool           // our key may be there or come: a request was not answered, or void and we do not know why

	mu   sync.Mutex // one release at a time
	lock *locker.Lock
	left bool // the turn was passed on and the session left
}

func (l *Locker) newAttempt(ctx context.Context, name string, opts []locker.Option) (*attempt, error) {
	req, err := locker.NewRequest(name, opts...)
	switch {
	case err != nil:
		return nil, err
	case checkTTL(req) != nil:
		return nil, fmt.Errorf("etcd: lock %q: %w", name, checkTTL(req))
	case l.closing.Err() != nil:
		return nil, fmt.Errorf("etcd: lock %q: %w", name, locker.ErrClosed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("etcd: lock %q: %w", name, context.Cause(ctx))
	}
	return &attempt{
		req: req, folder: l.folder(name), value: rand.Text() + " " + req.Holder,
		asked: locker.Now(),
	}, nil
}

// on puts the attempt, which has no place, on a session that was joined for it.
func (a *attempt) on(s *session) {
	a.session, a.key = s, a.folder+s.base
	a.place, a.mod, a.since, a.granted, a.doubt = 0, 0, 0, false, false
}

// take asks for a place, and for the lock if nobody is there. It returns the key
// ahead of ours, or "" if there is none, which is the lock. With only set it
// takes no place behind others: it returns [locker.ErrTaken].
//
// One transaction puts our key and looks who came before, so nobody can come
// between. It is void if the session's mark is another than we know, which is how
// a clean-up stops requests that are still on their way.
func (a *attempt) take(ctx context.Context, only bool) (ahead string, err error) {
	for range mostTries {
		resp, err := a.ask(ctx, only)
		if err != nil {
			return "", err
		}
		if resp.Succeeded {
			a.place, a.mod = resp.Header.Revision, resp.Header.Revision
			return a.decide(first(resp, 0)), nil
		}
		if holder := first(resp, 0); only && holder != nil && string(holder.Key) != a.key {
			a.doubt = false // ours would be the first
			return "", locker.ErrTaken
		}
		own, err := a.find(ctx)
		switch {
		case err != nil:
			return "", err
		case own == nil: // it was the mark, or is gone by now
			continue
		case string(own.Value) == a.value: // handed over to us, or put by a request sent twice
			a.place, a.mod = own.CreateRevision, own.ModRevision
			return a.look(ctx)
		}
		if err := a.clear(ctx, own.ModRevision); err != nil { // our predecessor's in the line: it is over, and its clean-up has not come yet
			return "", err
		}
	}
	return "", fmt.Errorf("%w: the session's key was in the way %d times in a row", locker.ErrUnavailable, mostTries)
}

func (a *attempt) ask(ctx context.Context, only bool) (*clientv3.TxnResponse, error) {
	free := unchanged(a.key, 0)
	var otherwise []clientv3.Op
	if only {
		free = unchanged(a.folder, 0).WithPrefix()
		otherwise = []clientv3.Op{clientv3.OpGet(a.folder, oldest...)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, errSilent)
	defer cancel()
	before := a.doubt // of what our predecessor in the line has sent for us
	a.doubt = true
	resp, err := a.kv().Txn(ctx).If(
		free, unchanged(a.session.mark, a.session.lastMark()),
	).Then(
		clientv3.OpGet(a.folder, newest...), clientv3.OpPut(a.key, a.value, clientv3.WithLease(a.session.id)),
	).Else(otherwise...).Commit()
	if err != nil {
		a.doubt = before || !refused(err)
		return nil, a.failed(ctx, err)
	}
	a.doubt = !resp.Succeeded
	return resp, nil
}

// find asks what was in the way of a request that was void: the session's mark,
// which it notes, or our key, which it returns if it is there. It is a question
// of its own for it is seldom needed, and may see a later state of the store: if
// nothing is in the way any more, the request can be sent again.
func (a *attempt) find(ctx context.Context) (own *keyValue, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, errSilent)
	defer cancel()
	resp, err := a.kv().Txn(ctx).Then(clientv3.OpGet(a.session.mark), clientv3.OpGet(a.key)).Commit()
	if err != nil {
		return nil, a.failed(ctx, err)
	}
	own = first(resp, 1)
	a.doubt = own != nil && string(own.Value) != a.value // while our predecessor's is there, its hand-over to us may come
	a.session.marked(resp.Header.Revision, modified(resp, 0))
	return own, nil
}

// look asks who is ahead of our key.
func (a *attempt) look(ctx context.Context) (ahead string, err error) {
	before := clientv3.OpGet(a.folder, slices.Concat(newest, []clientv3.OpOption{clientv3.WithMaxCreateRev(a.place - 1)})...)
	var resp *clientv3.TxnResponse
	err = insist(ctx, firstTry, func(ctx context.Context) (err error) {
		resp, err = a.kv().Txn(ctx).If(unchanged(a.key, a.mod)).Then(before).Commit()
		return err
	})
	switch {
	case err != nil:
		return "", a.failed(ctx, err)
	case !resp.Succeeded:
		return "", errPlaceLost
	}
	return a.decide(first(resp, 0)), nil
}

// lookAt asks who is ahead of our key since a revision of the store that we were
// told of, 0 for none. Any one server that has got there can tell, without asking
// the others, for what it shows is the store as it was at some revision, and the
// same on all of them. A grant may lean on the past, for those ahead can only go,
// and never come: if nobody was, nobody will be, for as long as our key is there.
// That it still is, the session answers for by the local clock, as for every
// holder. Whatever else the server shows is no answer: they are all asked then.
//
// To ask for that very revision would do as well, but the client logs a warning
// for every server that has not got there.
func (a *attempt) lookAt(ctx context.Context, at int64) (ahead string, err error) {
	if at == 0 {
		return a.look(ctx)
	}
	opts := slices.Concat(newest, []clientv3.OpOption{
		clientv3.WithMaxCreateRev(a.place), clientv3.WithLimit(2), clientv3.WithSerializable(),
	})
	try, cancel := context.WithTimeout(ctx, firstTry)
	defer cancel()
	resp, err := a.kv().Get(try, a.folder, opts...)
	switch {
	case err != nil || resp.Header.Revision < at || len(resp.Kvs) == 0 || resp.Kvs[0].ModRevision != a.mod:
		return a.look(ctx)
	case len(resp.Kvs) == 1:
		return a.decide(nil), nil
	}
	return a.decide(resp.Kvs[1]), nil
}

// errPlaceLost means that our key is gone from the queue: the session ended, or
// somebody deleted it.
var errPlaceLost = errors.New("the place in the queue was deleted")

// decide notes a grant.
func (a *attempt) decide(ahead *keyValue) string {
	if ahead != nil {
		return string(ahead.Key)
	}
	a.granted = true
	return ""
}

// clear deletes our key as some earlier attempt has left it.
func (a *attempt) clear(ctx context.Context, mod int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, errSilent)
	defer cancel()
	_, err := a.kv().Txn(ctx).If(unchanged(a.key, mod)).Then(clientv3.OpDelete(a.key)).Commit()
	if err != nil {
		return a.failed(ctx, err)
	}
	return nil
}

// erase deletes our key if it has our value. Where a request of ours may still
// be on its way, it also moves the session's mark, which makes that one void.
func (a *attempt) erase(ctx context.Context) error {
	var mark []clientv3.Op
	if a.doubt {
		mark = []clientv3.Op{clientv3.OpPut(a.session.mark, "", clientv3.WithLease(a.session.id)), clientv3.OpGet(a.session.mark)}
	}
	resp, err := a.kv().Txn(ctx).If(
		clientv3.Compare(clientv3.Value(a.key), "=", a.value),
	).Then(append(mark, clientv3.OpDelete(a.key))...).Else(mark...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return nil // and so are all its keys
	case err == nil && a.doubt:
		a.session.marked(resp.Header.Revision, modified(resp, 1))
	}
	return err
}

// failed explains an error of the servers.
func (a *attempt) failed(ctx context.Context, err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		a.doubt = false
		a.session.gone(err)
	}
	return unavailable(ctx, err)
}

func (a *attempt) kv() clientv3.KV { return a.session.owner.client }

// unavailable keeps the cause, for which a client that was told to stop has
// words of its own.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
}
