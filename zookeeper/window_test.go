package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/internal/zkclient"
)

type mute struct{}

func (mute) Printf(string, ...any) {}

// inFront returns a proxy in front of a server.
func inFront(t *testing.T, srv *testserver.ZooKeeperServer) *netproxy.Proxy {
	t.Helper()
	proxy, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// connect returns a connection that ends with the test, and a Locker on it.
func connect(t *testing.T, addr string, timeout time.Duration) (*zk.Conn, *Locker) {
	t.Helper()
	session := NewSession(nil)
	conn, _, err := zk.Connect([]string{addr}, timeout, zk.WithDialer(session.Dial), zk.WithLogger(mute{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	l, err := New(conn, Options{Session: session})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // never fails
	return conn, l
}

// granted returns a Locker and an attempt of its that has a place and nobody
// ahead, and is not a lock yet.
func granted(t *testing.T) (context.Context, *Locker, *attempt, *zk.Conn, *netproxy.Proxy) {
	t.Helper()
	proxy := inFront(t, testserver.ZooKeeper(t, 1)[0])
	conn, l := connect(t, proxy.Addr(), 10*time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	a, err := l.newAttempt(ctx, "n", nil)
	if err == nil {
		a.turn, err = l.lines.Stand(ctx, l.closing, "n", a)
	}
	if err == nil {
		err = l.wait(ctx, a)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ctx, l, a, conn, proxy
}

// The window between a grant and the lock that is made of it.
//
//	the place is granted; the connection is closed, which ends all locks that are
//	in the books; the lock is made and put there
func TestConnectionThatIsClosedWhileALockIsMadeLosesIt(t *testing.T) {
	t.Parallel()
	ctx, l, a, conn, _ := granted(t)
	conn.Close()
	lock, err := l.finish(ctx, a, nil)
	if err == nil && !errors.Is(lock.Err(), locker.ErrLost) {
		t.Errorf("a lock whose session was closed before it was made is believed in until %v", lock.Deadline())
	}
}

// A grant that is good for nothing is refused, and leaves no place behind.
//
//	the place is granted; its validity ends, or the client changes to a server that
//	grants a millisecond less, which may have ended the session; the lock is made
func TestGrantThatGrewTooOldOrTooShortIsRefused(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*Locker, *attempt){
		"old":   func(_ *Locker, a *attempt) { a.place.since = locker.Now().Add(locker.Drift(a.req.TTL) - a.req.TTL) },
		"short": func(l *Locker, a *attempt) { l.session.granted(a.timeout - time.Millisecond) },
	} {
		ctx, l, a, _, _ := granted(t)
		spoil(l, a)
		if lock, err := l.finish(ctx, a, nil); lock != nil || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("%s: error %v, want ErrUnavailable", what, err)
		}
		if children, err := l.latest(ctx, a.parent); err != nil || len(children) != 0 {
			t.Errorf("%s: left behind: %q, %v", what, children, err)
		}
	}
}

// What is believed in hangs on the session timeout that was granted, to the
// millisecond: a server that grants one less ends every lock that counts on more.
func TestSessionThatIsShortenedByAMillisecondEndsItsLocks(t *testing.T) {
	ctx, l, a, _, _ := granted(t)
	lock, err := l.finish(ctx, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.session.granted(a.timeout)
	if lock.Err() != nil {
		t.Errorf("lost to a server that grants the same: %v", lock.Err())
	}
	l.session.granted(a.timeout - time.Millisecond)
	if !errors.Is(lock.Err(), locker.ErrLost) {
		t.Errorf("believed in until %v, though the session is shorter now", lock.Deadline())
	}
}

// A clean-up must not overtake the request that it cleans up after.
//
//	the request for a place has not got as far as the connection; its attempt is
//	over and looks for what it left, and finds nothing; then the request is sent
func TestCleanUpWaitsForARequestThatIsStillToBeSent(t *testing.T) {
	ctx, l, a, _, _ := granted(t)
	p := newPlace(a.parent, a.place.anchor)
	gate := make(chan struct{})
	p.sent = zkclient.Async(ctx, l.zk, func() ([]zk.MultiResponse, error) {
		<-gate
		return l.zk.Conn.Multi(p.ops(nil, l.acl)...)
	})
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := l.remove(short, p); err == nil || errors.Is(err, errGone) {
		t.Errorf("a request that is still to be sent is said to have left nothing: %v", err)
	}
	close(gate)
	if err := l.remove(ctx, p); err != nil {
		t.Errorf("after it was sent: %v", err)
	}
	if children, err := l.latest(ctx, a.parent); err != nil || len(children) != 1 {
		t.Errorf("%q, %v", children, err)
	}
	if err := l.release(ctx, a); err != nil {
		t.Error(err)
	}
}

// A waiter's lock counts from before it asked whether its place is still there.
//
//	the waiter is woken and asks; the answer is held back: the session may end a
//	timeout after the question, not after the answer
func TestGrantAfterAWaitCountsFromBeforeTheQuestion(t *testing.T) {
	t.Parallel()
	ctx, l, a, _, proxy := granted(t)
	a.place.since = a.place.since.Add(-a.req.TTL) // it has waited for long
	before := a.place.since
	proxy.CutReplies()
	delivered := make(chan locker.Instant, 1)
	time.AfterFunc(200*time.Millisecond, func() { // this is how slow the answer is
		delivered <- locker.Now()
		proxy.Deliver()
	})
	ahead, err := l.look(ctx, a, true)
	if err != nil || ahead != "" {
		t.Fatalf("%q, %v", ahead, err)
	}
	if late := a.place.since.Sub(<-delivered); late >= 0 || a.place.since <= before {
		t.Errorf("validity counts from %v after the answer was sent on", late)
	}
	if err := l.release(ctx, a); err != nil {
		t.Error(err)
	}
}

// A place may grow old while the list is on its way.
//
//	the waiter looks when a little less than half of its validity is over; the
//	answer is held back until it is more
func TestPlaceThatGrowsOldWhileTheQueueIsListedIsConfirmed(t *testing.T) {
	t.Parallel()
	ctx, l, a, _, proxy := granted(t)
	const young = 200 * time.Millisecond
	a.place.since = locker.Now().Add(young - a.req.TTL/2)
	proxy.CutReplies()
	delivered := make(chan locker.Instant, 1)
	time.AfterFunc(2*young, func() {
		delivered <- locker.Now()
		proxy.Deliver()
	})
	ahead, err := l.look(ctx, a, false)
	if err != nil || ahead != "" {
		t.Fatalf("%q, %v", ahead, err)
	}
	if early := (<-delivered).Sub(a.place.since); early > 0 {
		t.Errorf("validity counts from %v before the list came", early)
	}
	if late := a.place.since.Sub(locker.Now()); late > 0 {
		t.Errorf("validity counts from %v after the answer", late)
	}
	if err := l.release(ctx, a); err != nil {
		t.Error(err)
	}
}

// A place in the list may be gone when it is confirmed.
//
//	an old place that the list has; the path that is asked for is not there
func TestOldPlaceThatIsGoneWhenItIsConfirmedIsNoGrant(t *testing.T) {
	ctx, l, a, _, _ := granted(t)
	a.place.since = a.place.since.Add(-a.req.TTL)
	path := a.place.path
	a.place.path += "gone"
	for _, likely := range []bool{true, false} {
		if ahead, err := l.look(ctx, a, likely); !errors.Is(err, errGone) {
			t.Errorf("%q, %v", ahead, err)
		}
	}
	a.place.path = path
	if err := l.release(ctx, a); err != nil {
		t.Error(err)
	}
}

// A waiter whose place is young is not confirmed, so its lock counts from when
// the place was made and not from the look that found it first. Wishes that lean
// on the beginning of validity get a new one.
//
//	the place is made; later, but before half of it is over, it is looked at
func TestOnlyWishesConfirmAYoungPlace(t *testing.T) {
	t.Parallel()
	ctx, l, a, _, _ := granted(t)
	for _, c := range []struct {
		name      string
		opts      []locker.Option
		confirmed bool
	}{
		{name: "no wishes"},
		{"WithoutRenewal", []locker.Option{locker.WithoutRenewal()}, true},
		{"WithMaxHold", []locker.Option{locker.WithMaxHold(time.Hour)}, true},
		{"WithMinValidity", []locker.Option{locker.WithMinValidity(time.Millisecond)}, true},
	} {
		req, err := locker.NewRequest("n", c.opts...)
		if err == nil {
			err = limit(req, a.timeout)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.req = req
		a.place.since = locker.Now().Add(-req.TTL / 4)
		before := a.place.since
		ahead, err := l.look(ctx, a, true)
		if err != nil || ahead != "" {
			t.Fatalf("%s: %q, %v", c.name, ahead, err)
		}
		if later := a.place.since.Sub(before); later > 0 != c.confirmed {
			t.Errorf("%s: validity counts from %v later than when the place was made", c.name, later)
		}
	}
	if err := l.release(ctx, a); err != nil {
		t.Error(err)
	}
}
