package etcd

import (
	"bytes"
	"context"
	"errors"
	"runtime/pprof"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
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

// live is a session that lasts.
type live struct{}

func (live) Context() context.Context  { return context.Background() }
func (live) Lasts() bool               { return true }
func (live) Lose(locker.Reason, error) {}

// A session's end is counted from before it was asked for, however long the answer takes.
//
//	the lease is granted, and the answer held back for a while
func TestSessionCountsFromItsRequest(t *testing.T) {
	srv, ctx := testserver.Etcd(t, 1).Members[0], aMinute(t)
	l, p := proxied(t, srv)
	client := l.store.client
	if _, err := client.Get(ctx, "x"); err != nil { // it is connected
		t.Fatal(err)
	}
	p.CutReplies()
	type result struct {
		since driver.Instant
		err   error
	}
	opened := make(chan result, 1)
	go func() {
		_, _, since, err := l.store.open(time.Hour, live{})
		opened <- result{since, err}
	}()
	other := process(t, srv)
	for granted := 0; granted == 0; {
		leases, err := other.store.client.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		granted = len(leases.Leases)
	}
	answered := driver.Now()
	p.Deliver()
	if got := <-opened; got.err != nil || got.since >= answered {
		t.Errorf("it counts from %v after it was there, %v", got.since.Sub(answered), got.err)
	}
}

// Validity counts from before the request was sent, however long the answer takes: that to
// the request for a place, or that to a look at the queue.
func TestGrantCountsFromItsRequest(t *testing.T) {
	const delay = 50 * time.Millisecond
	srv, ctx := testserver.Etcd(t, 1).Members[0], aMinute(t)
	other := process(t, srv)
	ahead := begin(t, ctx, other, "x")
	takes(t, ctx, other, ahead, "")
	l, p := proxied(t, srv)
	p.Delay(delay)
	waits, alone := begin(t, ctx, l, "x"), begin(t, ctx, l, "y")
	takes(t, ctx, l, waits, ahead.key)
	gives(t, ctx, other, ahead)
	for what, since := range map[string]func() (driver.Instant, string, error){
		"a look": func() (driver.Instant, string, error) { return l.store.follow(ctx, waits, ahead.key) },
		"a place": func() (driver.Instant, string, error) {
			grant, _, err := l.store.Acquire(ctx, alone, nil)
			return grant.Since, "", err
		},
	} {
		at, ahead, err := since()
		if before := driver.Now().Sub(at); err != nil || ahead != "" || before < 2*delay {
			t.Errorf("%s: %q is ahead, %v; it counts from %v before the answer, which takes %v", what, ahead, err, before, 2*delay)
		}
	}
}

// The clean-up after a session whose lease has ended already has nothing to do.
func TestSessionWhoseLeaseHasEndedLeavesNothing(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	n := begin(t, ctx, l, "x").session
	for range 2 {
		if err := l.store.end(ctx, n); err != nil {
			t.Error(err)
		}
	}
}

// A lease may have been revoked, and another granted with its number.
func TestLeaseThatSomebodyElseHasGrantedIsNotTakenForOurs(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
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
	if err := l.store.keepAlive(ctx, n); err != nil || n.kept() == nil {
		t.Fatalf("a renewal is answered with %v, and the stream is %v", err, n.kept())
	}
	p.CutReplies()
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := l.store.keepAlive(soon, n); !errors.Is(err, context.DeadlineExceeded) || n.kept() != nil {
		t.Errorf("a renewal without an answer: %v, and the stream is %v", err, n.kept())
	}
	p.Deliver()
	if err := l.store.keepAlive(ctx, n); err != nil || n.kept() == nil {
		t.Errorf("the next: %v, and the stream is %v", err, n.kept())
	}
}

// kept is the stream that the next renewal finds, when no renewal uses it.
func (n *session) kept() *stream {
	r := <-n.renewals
	n.renewals <- r
	return r
}

// renewing waits until so many renewals ask or wait.
func renewing(t *testing.T, ctx context.Context, want int) {
	t.Helper()
	for n := 0; n != want; time.Sleep(time.Millisecond) {
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2) // a Buffer takes everything
		if n = bytes.Count(stacks.Bytes(), []byte("etcd.(*store).askForTTL(")); ctx.Err() != nil {
			t.Fatalf("%d renewals are under way, want %d", n, want)
		}
	}
}

// sent is how many renewals a server was sent.
func sent(srv *testserver.EtcdServer) float64 {
	return srv.Metric(`grpc_server_msg_received_total{grpc_method="LeaseKeepAlive"`)
}

// Renewals that come while another is under way are answered together.
//
//	the stream is in use; fifty renewals come; it is there again
func TestRenewalsThatWaitShareARequest(t *testing.T) {
	srv, ctx := testserver.Etcd(t, 1).Members[0], aMinute(t)
	l := process(t, srv)
	n := begin(t, ctx, l, "x").session
	if err := l.store.keepAlive(ctx, n); err != nil {
		t.Fatal(err)
	}
	r, before := <-n.renewals, sent(srv)
	const renewals = 50
	errs := make(chan error, renewals)
	for range renewals {
		go func() { errs <- l.store.askForTTL(ctx, n) }()
	}
	renewing(t, ctx, renewals)
	n.renewals <- r
	for range renewals {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if more := sent(srv) - before; more != 1 {
		t.Errorf("%v requests", more)
	}
}

// The validity of a renewal counts from when it came. So the answer to a request that was
// sent before is none for it.
//
//	a renewal is sent; another comes; the answer to the first
func TestRenewalIsNotAnsweredByARequestThatWasSentBeforeItCame(t *testing.T) {
	srv, ctx := testserver.Etcd(t, 1).Members[0], aMinute(t)
	l, p := proxied(t, srv)
	n := begin(t, ctx, l, "x").session
	if err := l.store.keepAlive(ctx, n); err != nil {
		t.Fatal(err)
	}
	before := sent(srv)
	p.CutReplies()
	errs := make(chan error, 2)
	go func() { errs <- l.store.askForTTL(ctx, n) }()
	for sent(srv) == before && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	go func() { errs <- l.store.askForTTL(ctx, n) }()
	renewing(t, ctx, 2)
	p.Deliver()
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	if more := sent(srv) - before; more != 2 {
		t.Errorf("%v requests for two renewals", more)
	}
}

// A renewal that a server does not answer keeps no other from asking another server. When
// its answer comes after all, there is another stream already.
func TestRenewalWithoutAnAnswerDoesNotKeepOthersWaiting(t *testing.T) {
	ctx := aMinute(t)
	l, p := proxied(t, testserver.Etcd(t, 1).Members[0])
	n := begin(t, ctx, l, "x").session
	if err := l.store.keepAlive(ctx, n); err != nil {
		t.Fatal(err)
	}
	used := n.kept()
	p.CutReplies()
	late := make(chan error, 1)
	go func() { late <- l.store.askForTTL(ctx, n) }()
	renewing(t, ctx, 1)
	select {
	case r := <-n.renewals:
		if r != nil {
			t.Error("the next renewal gets a stream that owes an answer")
		}
	case <-ctx.Done():
		t.Fatal("others wait for it")
	}
	p.Deliver()
	if err := <-late; err != nil || used.Context().Err() == nil {
		t.Errorf("it is answered with %v, and its stream goes on", err)
	}
	if len(n.renewals) != 0 {
		t.Error("two may renew at a time")
	}
	n.renewals <- nil
	if err := l.store.keepAlive(ctx, n); err != nil {
		t.Error(err)
	}
}
