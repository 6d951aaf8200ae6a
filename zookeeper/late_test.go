package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/zookeeper"
)

// A request that is delayed until its connection has been replaced, its attempt
// has failed and what it left has been looked for, makes no place any more.
func TestRequestThatArrivesAfterTheCleanUpMakesNoPlace(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := conformance.NewProxy(t, s.Addr())
	var addr atomic.Value
	addr.Store(p.Addr())
	session := zookeeper.NewSession(func(network, _ string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout(network, addr.Load().(string), timeout)
	})
	conn, _, err := zk.Connect([]string{s.Addr()}, 6*time.Second, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a, b := newLocker(t, conn, zookeeper.Options{Session: session}), newClient(t, sessionTimeout, s.Addr())
	keep(t, a, conn, "n")
	keep(t, a, conn, "n2")
	p.Cut()
	addr.Store(s.Addr()) // for the next connection of the same session
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := a.TryLock(ctx, "n"); !errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("TryLock without an answer: %v", err)
	}
	cleanedUp(t, a)
	p.Deliver()
	until(t, "the old connection to go", func() bool { return p.Conns() == 0 })
	held := lock(t, b, "n")
	if info, err := b.Inspect(soon(t), "n"); err != nil || info.Waiters != 0 {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	unlock(t, held)
}

// The zk client keeps a request that it could not send, also until after the
// session has ended, and then sends it in the next one: long after its attempt
// failed, and with nobody left who knows of it.
func TestRequestThatIsSentInTheNextSessionMakesNoPlace(t *testing.T) {
	t.Parallel()
	s := server(t)
	var mu sync.Mutex // the network: held while it is down
	var last net.Conn
	session := zookeeper.NewSession(func(network, _ string, timeout time.Duration) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		var err error
		last, err = net.DialTimeout(network, s.Addr(), timeout)
		return last, err
	})
	// With fewer servers the client drops such a request before it goes on.
	addrs := []string{"127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"}
	conn, _, err := zk.Connect(addrs, time.Second, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a, b := newLocker(t, conn, zookeeper.Options{Session: session}), newClient(t, sessionTimeout, s.Addr())
	keep(t, b, b.conn, "n2")
	keep(t, a, conn, "n")
	id := conn.SessionID()

	mu.Lock()
	last.Close()
	until(t, "the client to notice", func() bool { return conn.State() != zk.StateHasSession })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	_, err = a.TryLock(ctx, "n")
	cancel()
	if err == nil {
		t.Error("TryLock succeeded without a network")
	}
	until(t, "the end of one of two sessions", func() bool { return anchors(t, b.conn) == 1 })
	mu.Unlock()

	unlock(t, lock(t, a, "n2"))
	if conn.SessionID() == id {
		t.Fatal("the session has not ended: nothing is tested")
	}
	held := lock(t, b, "n")
	if info, err := b.Inspect(soon(t), "n"); err != nil || info.Waiters != 0 {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	unlock(t, held)
}

// anchors counts the sessions on which locks hang.
func anchors(t *testing.T, conn *zk.Conn) (n int) {
	t.Helper()
	nodes, _, err := conn.Children(zookeeper.DefaultBase)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	for _, node := range nodes {
		if strings.HasPrefix(node, "%session-") {
			n++
		}
	}
	return n
}

// An attempt may end before its request has got as far as the connection, so
// that its clean-up could overtake it.
func TestAttemptsThatAreCutShortLeaveNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	const names, attempts = 64, 40
	for i := range names {
		keep(t, c, c.conn, fmt.Sprint(i))
	}
	var all sync.WaitGroup
	for i := range names {
		all.Go(func() {
			for n := range attempts {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n)*100*time.Microsecond)
				if lk, err := c.TryLock(ctx, fmt.Sprint(i)); err == nil {
					_ = lk.Unlock(soon(t))
				}
				cancel()
			}
		})
	}
	all.Wait()
	cleanedUp(t, c.Locker)
	for i := range names {
		children, _, err := c.conn.Children(fmt.Sprint(zookeeper.DefaultBase, "/", i))
		if err != nil || len(children) != 1 {
			t.Errorf("children %q, error %v", children, err)
		}
	}
}

// The session lives on, so nothing but the clean-up frees the lock.
func TestUnlockThatWasNotHeardIsMadeUpFor(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := conformance.NewProxy(t, s.Addr())
	a, b := newClient(t, time.Minute, p.Addr()), newClient(t, time.Minute, s.Addr())
	minute := locker.WithTTL(time.Minute)
	held := lock(t, a, "n", minute)
	id := a.conn.SessionID()
	p.Cut()
	if err := held.Unlock(soon(t)); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Unlock without a network: %v", err)
	}
	p.Heal()
	unlock(t, lock(t, b, "n", minute))
	if a.conn.SessionID() != id {
		t.Fatal("the session has ended: nothing is tested")
	}
}
