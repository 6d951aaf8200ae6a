package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// processes returns attempts at one name, of as many processes, and their server.
func processes(t *testing.T, n int) (context.Context, *testserver.EtcdServer, []*attempt) {
	t.Helper()
	cluster := testserver.Etcd(t, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	all := make([]*attempt, n)
	for i := range all {
		all[i] = process(t, ctx, cluster.Endpoints())
	}
	return ctx, cluster.Members[0], all
}

// process returns an attempt of a process of its own.
func process(t *testing.T, ctx context.Context, endpoints []string) *attempt {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	l, err := New(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return again(t, ctx, l)
}

// again returns one more attempt of a process.
func again(t *testing.T, ctx context.Context, l *Locker, opts ...locker.Option) *attempt {
	t.Helper()
	a, err := l.newAttempt(ctx, "x", opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.join(ctx, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// takes requires that an attempt gets its place behind a key, or the lock.
func takes(t *testing.T, ctx context.Context, a *attempt, behind string) {
	t.Helper()
	if ahead, err := a.take(ctx, false); err != nil || ahead != behind {
		t.Fatalf("a place behind %q, %v, want %q", ahead, err, behind)
	}
}

// gives deletes an attempt's key and returns the revision at which it is gone.
func gives(t *testing.T, ctx context.Context, a *attempt) int64 {
	t.Helper()
	resp, err := a.kv().Delete(ctx, a.key)
	if err != nil || resp.Deleted != 1 {
		t.Fatalf("%d keys deleted, %v", resp.Deleted, err)
	}
	return resp.Header.Revision
}

// quorums counts the questions that all servers were asked: those of one alone
// are no transactions.
func quorums(srv *testserver.EtcdServer) float64 {
	return srv.Metric(`grpc_server_handled_total{grpc_code="OK",grpc_method="Txn"`)
}

// One server shows the nearest key ahead, whatever came before that or after us,
// and no quorum is asked.
//
//	four in a queue, a to d; c looks each time when b has gone, and a
func TestOneServerShowsTheNearestKeyAhead(t *testing.T) {
	ctx, srv, all := processes(t, 4)
	a, b, c, d := all[0], all[1], all[2], all[3]
	takes(t, ctx, a, "")
	takes(t, ctx, b, a.key)
	takes(t, ctx, c, b.key)
	takes(t, ctx, d, c.key)
	before := quorums(srv)
	looks := func(at int64, want string) {
		t.Helper()
		ahead, err := c.lookAt(ctx, at)
		if err != nil || ahead != want || c.granted != (want == "") {
			t.Errorf("%q is ahead, granted: %v, %v; want %q", ahead, c.granted, err, want)
		}
	}
	looks(d.place, b.key)
	looks(gives(t, ctx, b), a.key)
	looks(gives(t, ctx, a), "")
	if asked := quorums(srv) - before; asked != 0 {
		t.Errorf("a quorum was asked %v times", asked)
	}
}

// Nobody ahead is no grant to one whose own key is not there as it was put.
//
//	b waits for a; somebody deletes b's key by hand, or writes it; b looks, a
//	goes, b looks again
func TestOneServerThatDoesNotShowOurKeyGrantsNothing(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(context.Context, *attempt) error{
		"deleted": func(ctx context.Context, b *attempt) error {
			_, err := b.kv().Delete(ctx, b.key)
			return err
		},
		"written": func(ctx context.Context, b *attempt) error {
			_, err := b.kv().Put(ctx, b.key, "another's", clientv3.WithLease(b.session.id))
			return err
		},
		"deleted, and somebody came after": func(ctx context.Context, b *attempt) error {
			if _, err := b.kv().Delete(ctx, b.key); err != nil {
				return err
			}
			_, err := b.kv().Put(ctx, b.folder+"another", "")
			return err
		},
		"made anew, at a later place": func(ctx context.Context, b *attempt) error {
			if _, err := b.kv().Delete(ctx, b.key); err != nil {
				return err
			}
			_, err := b.kv().Put(ctx, b.key, b.value)
			return err
		},
	}
	for how, spoil := range spoil {
		t.Run(how, func(t *testing.T) {
			ctx, _, all := processes(t, 2)
			a, b := all[0], all[1]
			takes(t, ctx, a, "")
			takes(t, ctx, b, a.key)
			if err := spoil(ctx, b); err != nil {
				t.Fatal(err)
			}
			for _, goes := range []bool{false, true} {
				at := b.place
				if goes {
					at = gives(t, ctx, a)
				}
				ahead, err := b.lookAt(ctx, at)
				if !errors.Is(err, errPlaceLost) || b.granted {
					t.Errorf("a has gone: %v; %q is ahead, granted: %v, %v", goes, ahead, b.granted, err)
				}
			}
		})
	}
}

// A server that has not got to the revision that we were told of may show a key
// that is gone, and nobody would tell us a second time.
func TestServerThatLagsIsNotBelieved(t *testing.T) {
	ctx, srv, all := processes(t, 2)
	takes(t, ctx, all[0], "")
	takes(t, ctx, all[1], all[0].key)
	before := quorums(srv)
	if ahead, err := all[1].lookAt(ctx, all[1].place+1000); err != nil || ahead != all[0].key {
		t.Errorf("%q is ahead, %v", ahead, err)
	}
	if asked := quorums(srv) - before; asked != 1 {
		t.Errorf("a quorum was asked %v times", asked)
	}
}

// What happens between our place and the beginning of the watch is not missed.
//
//	b takes a place behind a; a goes; b begins to watch a's key
func TestKeyAheadThatGoesBeforeItIsWatchedIsSeenToBeGone(t *testing.T) {
	ctx, _, all := processes(t, 2)
	a, b := all[0], all[1]
	takes(t, ctx, a, "")
	takes(t, ctx, b, a.key)
	gives(t, ctx, a)
	short, cancel := context.WithTimeout(ctx, b.session.ttl/2) // it looks by itself once in a TTL
	defer cancel()
	if ahead, err := b.follow(short, a.key); err != nil || ahead != "" || !b.granted {
		t.Errorf("%q is ahead, granted: %v, %v", ahead, b.granted, err)
	}
}

// The past is the same on all servers: one tells it while the others are silent.
func TestOneServerTellsWhoIsAheadWithoutTheOthers(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	endpoints := cluster.Endpoints()[:1]
	a, b := process(t, ctx, endpoints), process(t, ctx, endpoints)
	takes(t, ctx, a, "")
	takes(t, ctx, b, a.key)
	for _, other := range cluster.Members[1:] {
		other.Pause()
		defer other.Resume()
	}
	if ahead, err := b.lookAt(ctx, b.place); err != nil || ahead != a.key {
		t.Errorf("%q is ahead, %v", ahead, err)
	}
}
