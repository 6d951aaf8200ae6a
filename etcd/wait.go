package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// watchPause is the pause before a watch that broke is opened again.
const watchPause = 100 * time.Millisecond

// follow waits until the key ahead may be gone, and returns the one that is ahead then.
// The watch begins now: the servers serve one that begins at a past revision with a
// delay. So what has happened between our place and its beginning is looked up. A word
// from before our place says nothing new: we have seen the queue as it was then.
//
// The watch may be silent for ever, if its server is. So we look now and then, and open
// another.
func (s *store) follow(ctx context.Context, a *attempt, ahead string) (since driver.Instant, now string, err error) {
	w := s.watch(ctx, ahead, a.watched(ahead))
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
		since = driver.Now()
		now, err = s.look(ctx, a, ahead)
		if err != nil || now != ahead || at == 0 {
			return since, now, err
		}
	}
}

// watch gets a word when a key is deleted, or one of a range.
type watch struct {
	words  clientv3.WatchChan
	cancel context.CancelFunc
}

// watch opens a watch, of which the first word is that it has begun. All watches of a
// Locker share one stream: their contexts must not carry what belongs to a caller. The
// stream may be to a server that hangs, while the session lives on through another: so
// opening it has an end, too.
func (s *store) watch(ctx context.Context, key, end string) *watch {
	own, cancel := context.WithCancel(clientv3.WithRequireLeader(s.locks.Closing()))
	patience, stop := bounded(ctx)
	defer stop()
	defer context.AfterFunc(patience, cancel)()
	return &watch{s.client.Watch(own, key, clientv3.WithRange(end), clientv3.WithFilterPut(), clientv3.WithCreatedNotify()), cancel}
}

// next waits for a word, for a TTL or half a minute at most. It returns the revision of the
// store that the word is about, or 0 if there was none.
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
			timer.Reset(watchPause)
		case <-timer.C:
			return 0, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-n.Context().Done():
			return 0, context.Cause(n.Context())
		}
	}
}
