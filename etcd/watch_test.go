package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// follows waits for the keys ahead in the background, to the last, and returns
// what comes of it.
func follows(ctx context.Context, a *attempt, ahead string) <-chan error {
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && !a.granted {
			ahead, err = a.follow(ctx, ahead)
		}
		done <- err
	}()
	return done
}

// waitsFor has b wait behind a, lets a go once b is about to wait, and requires
// that b is granted the lock then.
func waitsFor(t *testing.T, ctx context.Context, a, b *attempt) {
	t.Helper()
	takes(t, ctx, a, "")
	takes(t, ctx, b, a.key)
	done := follows(ctx, b, a.key)
	select {
	case err := <-done:
		t.Fatalf("b does not wait for a: granted: %v, %v", b.granted, err)
	case <-time.After(20 * time.Millisecond): // whichever of the two is first now
	}
	gives(t, ctx, a)
	if err := <-done; err != nil || !b.granted {
		t.Fatalf("granted: %v, %v", b.granted, err)
	}
	gives(t, ctx, b)
}

// watches counts the messages about watches that a server was sent.
func watches(srv *testserver.EtcdServer) float64 {
	return srv.Metric(`grpc_server_msg_received_total{grpc_method="Watch"`)
}

// mostly requires that quorums were asked for some places, and for fewer than all of
// the grants that word of a watch brought about. Not for none of them: a server sends
// the word before it shows that revision to readers (etcd 3.7, mvcc,
// watchableStoreTxnWrite.End), so a quick client may read too early, and then asks them
// all.
func mostly(t *testing.T, before, after, places, grants float64) {
	t.Helper()
	if n := after - before; n < places || n >= places+grants {
		t.Errorf("%v places and %v grants took %v questions to a quorum", places, grants, n)
	}
}

// Two processes that take turns watch each other once, and need no more than one
// server's word. What the watch tells of the time between is no word of this time.
//
//	b waits for a, and gets the lock; between the rounds a locks and unlocks
//	once more, which b does not wait for
func TestWatchIsKeptForTheNextWaitBehindTheSameKey(t *testing.T) {
	ctx, srv, all := processes(t, 2)
	a, b := all[0], all[1]
	b.session.owner.keepTime = time.Hour
	waitsFor(t, ctx, a, b)
	messages, asked := watches(srv), quorums(srv)
	for range 5 {
		a = again(t, ctx, a.session.owner)
		takes(t, ctx, a, "")
		gives(t, ctx, a)
		a, b = again(t, ctx, a.session.owner), again(t, ctx, b.session.owner)
		waitsFor(t, ctx, a, b)
	}
	if more := watches(srv) - messages; more != 0 {
		t.Errorf("%v messages about watches", more)
	}
	mostly(t, asked, quorums(srv), 15, 5)
}

// A watch is of no use behind another key, and ends when it was kept in vain.
//
//	b waits for a, then for c, then for nobody
func TestWatchThatIsKeptInVainEnds(t *testing.T) {
	ctx, srv, all := processes(t, 3)
	a, b, c := all[0], all[1], all[2]
	l := b.session.owner
	l.keepTime = time.Hour
	waitsFor(t, ctx, a, b)
	l.keepTime = time.Millisecond
	waitsFor(t, ctx, c, again(t, ctx, l))
	for srv.Metric("etcd_debugging_mvcc_watcher_total") > 0 {
		if ctx.Err() != nil {
			t.Fatal("a watch that nobody needs is still there")
		}
		time.Sleep(time.Millisecond)
	}
	if w := l.kept(b.folder); w != nil {
		t.Errorf("the watch for %q is still kept", w.key)
	}
}

// Close ends the watches that are kept.
func TestCloseEndsWatches(t *testing.T) {
	ctx, srv, all := processes(t, 2)
	l := all[1].session.owner
	l.keepTime = time.Hour
	waitsFor(t, ctx, all[0], all[1])
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for srv.Metric("etcd_debugging_mvcc_watcher_total") > 0 {
		if ctx.Err() != nil {
			t.Fatal("a watch of a closed Locker is still there")
		}
		time.Sleep(time.Millisecond)
	}
}

// A watch that breaks while it is kept costs the next waiter a moment.
//
//	b waits for a; the watch that is kept ends; b waits for a again
func TestWatchThatBreaksWhileItIsKeptStopsNobody(t *testing.T) {
	ctx, _, all := processes(t, 2)
	a, b := all[0], all[1]
	l := b.session.owner
	l.keepTime = time.Hour
	waitsFor(t, ctx, a, b)
	w := l.watches[b.folder]
	w.cancel()
	for range w.words { // until it is known to be over
	}
	a, b = again(t, ctx, a.session.owner), again(t, ctx, l)
	takes(t, ctx, a, "")
	takes(t, ctx, b, a.key)
	done := follows(ctx, b, a.key)
	gives(t, ctx, a)
	if err := <-done; err != nil || !b.granted {
		t.Errorf("granted: %v, %v", b.granted, err)
	}
}
