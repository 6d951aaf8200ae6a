package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keepTime is for how long a watch is kept that nobody waits for. What it tells
// meanwhile heaps up in the client.
const keepTime = time.Second

// watch tells of the deletions of one key.
type watch struct {
	key    string
	words  clientv3.WatchChan
	cancel context.CancelFunc
	expiry *time.Timer // while it is kept
}

// watch opens a watch, or takes the one that was kept for the name: processes
// that want a lock again and again stand in the same order each time.
func (l *Locker) watch(ctx context.Context, folder, key string) *watch {
	if w := l.kept(folder); w != nil {
		if w.key == key {
			return w
		}
		w.cancel()
	}
	return l.openWatch(ctx, key)
}

// openWatch opens a watch. All watches of a Locker share one stream: their
// contexts must not carry what belongs to a caller. The stream may hang on a
// server that hangs, and the session live on through another: so opening it has
// an end, too.
func (l *Locker) openWatch(ctx context.Context, key string) *watch {
	own, cancel := context.WithCancel(clientv3.WithRequireLeader(l.closing))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	patience := time.AfterFunc(askTime, cancel)
	defer patience.Stop()
	words := l.client.Watch(own, key, clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	return &watch{key: key, words: words, cancel: cancel}
}

// keep puts a watch by for the next waiter of the name. There is only one at a
// time, who has the turn.
func (l *Locker) keep(folder string, w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches[folder] = w
	w.expiry = time.AfterFunc(l.keepTime, func() {
		w.cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.watches[folder] == w {
			delete(l.watches, folder)
		}
	})
}

// kept returns the watch that was put by, or nil.
func (l *Locker) kept(folder string) *watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watches[folder]
	delete(l.watches, folder)
	if w == nil || !w.expiry.Stop() {
		return nil
	}
	return w
}

// next waits for word of the watch, for d at most. It returns the revision of the
// store that the word is about, 0 if there was none, and false if none is to be
// expected any more.
func (w *watch) next(ctx context.Context, d time.Duration) (at int64, ok bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case word, ok := <-w.words:
		if !ok || word.Err() != nil {
			return 0, false
		}
		return word.Header.Revision, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return 0, true
}
