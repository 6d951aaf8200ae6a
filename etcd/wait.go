package etcd

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
)

// breath is the pause before a watch is opened again.
const breath = 100 * time.Millisecond

// follow waits until the key ahead may be gone, and returns the one that is ahead then.
// A watch that begins now tells at once, where the servers serve one that begins at a
// past revision with a delay. What has happened between our place and its beginning is
// looked up; word from before our place tells nothing that we did not know when we got
// the place.
//
// The watch may be silent for ever, if its server is. So we look now and then, and open
// another.
func (s *store) follow(ctx context.Context, a *attempt, ahead string) (since locker.Instant, now string, err error) {
	w := s.watch(ctx, ahead)
	defer w.cancel()
	for {
		var at int64
		at, err = w.next(ctx, a.session)
		switch {
		case err != nil:
			return 0, "", err
		case 0 < at && at <= a.place:
			continue
		}
		since = locker.Now()
		now, err = s.lookAt(ctx, a, at)
		if err != nil || now != ahead || at == 0 {
			return since, now, err
		}
	}
}

// lookAt asks who is ahead of the attempt's key since a revision of the store that we
// were told of, 0 for none. Any one server that has got there can tell, without asking
// the others, which is a third less for all of them where processes hand a lock around:
// what it shows is the store as it was at some revision, the same on all servers. A grant
// may lean on the past, for those ahead can only go, and never come: if nobody was, nobody
// will be, for as long as our key is there. That it still is, the session answers for, as
// for every holder. Whatever else the server shows is no answer: they are all asked then.
//
// To ask for that very revision would do as well, but the client logs a warning for every
// server that has not got there.
func (s *store) lookAt(ctx context.Context, a *attempt, at int64) (ahead string, err error) {
	if at == 0 {
		return s.look(ctx, a)
	}
	try, cancel := context.WithTimeout(ctx, firstTry)
	defer cancel()
	resp, err := s.client.Get(try, a.folder, slices.Concat(newest, []clientv3.OpOption{
		clientv3.WithMaxCreateRev(a.place), clientv3.WithLimit(2), clientv3.WithSerializable(),
	})...)
	switch {
	case err != nil || resp.Header.Revision < at || len(resp.Kvs) == 0 || resp.Kvs[0].CreateRevision != a.place:
		return s.look(ctx, a)
	case len(resp.Kvs) == 1:
		return "", nil
	}
	return string(resp.Kvs[1].Key), nil
}

// watch tells of the deletion of one key.
type watch struct {
	words  clientv3.WatchChan
	cancel context.CancelFunc
}

// watch opens a watch, of which the first word is that it has begun. All watches of a
// Locker share one stream: their contexts must not carry what belongs to a caller. The
// stream may hang on a server that hangs, and the session live on through another: so
// opening it has an end, too.
func (s *store) watch(ctx context.Context, key string) *watch {
	own, cancel := context.WithCancel(clientv3.WithRequireLeader(s.locks.Closing()))
	patience, end := bounded(ctx)
	defer end()
	defer context.AfterFunc(patience, cancel)()
	return &watch{s.client.Watch(own, key, clientv3.WithFilterPut(), clientv3.WithCreatedNotify()), cancel}
}

// next waits for word of the watch, for a TTL or half a minute at most. It returns the
// revision of the store that the word is about, and 0 if there was none.
func (w *watch) next(ctx context.Context, n *session) (at int64, err error) {
	timer := time.NewTimer(min(n.ttl, locker.DefaultTTL))
	defer timer.Stop()
	words := w.words
	for {
		select {
		case word, ok := <-words:
			if ok && word.Err() == nil {
				return word.Header.Revision, nil
			}
			words = nil // there is no watch any more: at least we look
			timer.Reset(breath)
		case <-timer.C:
			return 0, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-n.Context().Done():
			return 0, context.Cause(n.Context())
		}
	}
}
