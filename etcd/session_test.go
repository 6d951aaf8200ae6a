package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lab/netproxy"
	"github.com/lockstile/locker/internal/lab/testserver"
)

// proxied is process, with a network that can be broken.
func proxied(t *testing.T, srv *testserver.EtcdServer) (*Locker, *netproxy.Proxy) {
	t.Helper()
	p, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return at(t, p.Addr()), p
}

// A session's end is counted from before it was asked for, however long the answer takes.
//
//	the lease is granted, and the answer held back for a while
func TestSessionCountsFromItsRequest(t *testing.T) {
	ctx, srv := aMinute(t), testserver.Etcd(t, 1).Members[0]
	l, p := proxied(t, srv)
	client := l.store.client
	if _, err := client.Get(ctx, "x"); err != nil { // it is connected
		t.Fatal(err)
	}
	p.CutReplies()
	n := l.store.current(time.Hour)
	other := process(t, srv)
	for granted := 0; granted == 0; {
		leases, err := other.store.client.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		granted = len(leases.Leases)
	}
	answered := locker.Now()
	p.Deliver()
	if <-n.opened; n.err != nil {
		t.Fatal(n.err)
	}
	if n.Since() >= answered {
		t.Errorf("it counts from %v after it was there", n.Since().Sub(answered))
	}
}

// A lease may have been revoked, and another granted with its number.
func TestLeaseThatSomebodyElseHasGrantedIsNotTakenForOurs(t *testing.T) {
	ctx, l := aMinute(t), process(t, testserver.Etcd(t, 1).Members[0])
	n := begin(t, ctx, l, "x").session
	if err := l.store.keepAlive(ctx, n); err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.client.Revoke(ctx, n.id); err != nil {
		t.Fatal(err)
	}
	leases := pb.NewLeaseClient(l.store.client.ActiveConnection())
	if _, err := leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(n.id), TTL: 60}); err != nil {
		t.Fatal(err)
	}
	if err := l.store.keepAlive(ctx, n); err == nil {
		t.Error("a lease of a minute is believed in for an hour")
	}
}

// The answer to a renewal that was given up says nothing of the time after it, and must not
// be taken for the answer to the next.
//
//	a renewal is given up; its answer comes; another renewal
func TestStreamThatOwesAnAnswerIsNotUsedAgain(t *testing.T) {
	ctx := aMinute(t)
	l, p := proxied(t, testserver.Etcd(t, 1).Members[0])
	n := begin(t, ctx, l, "x").session
	if err := l.store.keepAlive(ctx, n); err != nil || n.renewals.Load() == nil {
		t.Fatalf("a renewal is answered with %v, and the stream is %v", err, n.renewals.Load())
	}
	p.CutReplies()
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := l.store.keepAlive(soon, n); !errors.Is(err, context.DeadlineExceeded) || n.renewals.Load() != nil {
		t.Errorf("a renewal without an answer: %v, and the stream is %v", err, n.renewals.Load())
	}
	p.Deliver()
	if err := l.store.keepAlive(ctx, n); err != nil || n.renewals.Load() == nil {
		t.Errorf("the next: %v, and the stream is %v", err, n.renewals.Load())
	}
}
