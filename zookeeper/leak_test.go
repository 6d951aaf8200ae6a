package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/zookeeper"
)

// A program may make Lockers on one connection again and again. They must not fill its
// session, for the connection lives on.
//
//	make a Locker, lock, unlock, Close; ten times; what is below the base?
func TestClosedLockerLeavesNothingInTheSession(t *testing.T) {
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	for range 10 {
		l, err := zookeeper.New(c.conn, zookeeper.Options{SessionTimeout: sessionTimeout})
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, lock(t, l, "n"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := sessions(t, c.conn); n > 0 {
		t.Errorf("%d nodes are left", n)
	}
}

// Callers with less patience than it takes to make a session share one. The nodes of
// sessions that nobody waits for would stay for as long as the connection.
//
//	the servers' replies are held back; twenty callers give up one after the other; the
//	replies come
func TestCallersWithLittlePatienceShareASession(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := conformance.NewProxy(t, s.Addr())
	c, other := newClient(t, time.Minute, p.Addr()), newClient(t, time.Minute, s.Addr())
	minute := locker.WithTTL(time.Minute)
	keep(t, other, other.conn, "n", minute) // so that there is a base
	if _, _, err := c.conn.Exists("/"); err != nil {
		t.Fatal(err)
	}
	p.CutReplies()
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		if _, err := c.TryLock(ctx, "n", minute); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("TryLock without an answer: %v", err)
		}
		cancel()
	}
	p.Deliver()
	unlock(t, lock(t, c, "n", minute))
	if n := sessions(t, other.conn) - 1; n != 1 { // without the other's
		t.Errorf("a process has %d sessions", n)
	}
}

// A caller that waits for the first connection waits no longer than the Locker
// lives.
//
//	the server is paused before the client has watchedConn it; Lock with Background;
//	Close
func TestCloseEndsTheWaitForTheFirstConnection(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.Pause()
	c := newClient(t, sessionTimeout, s.Addr())
	result := make(chan error, 2)
	go func() {
		_, err := c.Lock(context.Background(), "n")
		result <- err
	}()
	go func() {
		_, err := c.TryLock(context.Background(), "m")
		result <- err
	}()
	until(t, "TCP", func() bool { return c.conn.State() == zk.StateConnected })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		select {
		case err := <-result:
			if !errors.Is(err, locker.ErrClosed) {
				t.Errorf("a caller of a closed Locker: %v", err)
			}
		case <-time.After(patience):
			t.Error("it waits on")
		}
	}
	s.Resume()
}

// A caller without a deadline hears of silence before the zk client does, which waits ten
// times two thirds of a session for its greeting.
func TestLockWithoutDeadlineGivesUpOnASilentServer(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.Pause()
	c := newClient(t, time.Minute, s.Addr())
	result := make(chan error, 1)
	go func() { _, err := c.Lock(context.Background(), "n", locker.WithTTL(time.Minute)); result <- err }()
	select {
	case err := <-result:
		if !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Lock on a silent server: %v", err)
		}
	case <-time.After(patience):
		t.Error("it waits on")
	}
	s.Resume()
}

// A server that hangs may accept a connection, and never greet the client, which tries no
// other meanwhile.
//
//	the first connection is to a server that hangs, the next to another
func TestServerThatDoesNotGreetIsLeft(t *testing.T) {
	t.Parallel()
	s := server(t)
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	var next atomic.Value
	next.Store(hangs.Addr().String())
	session := zookeeper.NewSession(func(network, _ string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout(network, next.Swap(s.Addr()).(string), timeout)
	})
	conn, _, err := zk.Connect([]string{s.Addr()}, time.Minute, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	l := newLocker(t, conn, zookeeper.Options{Session: session})
	until(t, "a server that answers", func() bool {
		lk, err := l.Lock(soon(t), "n", locker.WithTTL(time.Minute))
		if err == nil {
			unlock(t, lk)
		}
		return err == nil
	})
}

// A lock whose node nobody may read any more is still there, and takes no other with it.
//
//	three names of one process; somebody sets an ACL on the node of the second
//	that allows nothing; all are renewed
func TestNodeThatMayNotBeReadLosesNoLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	var locks []*locker.Lock
	for i := range 3 {
		locks = append(locks, lock(t, c, fmt.Sprint("n", i)))
	}
	nobody := zk.DigestACL(zk.PermAll, "some", "body")
	if _, err := c.conn.SetACL(only(t, c.conn, "n1"), nobody, -1); err != nil {
		t.Fatal(err)
	}
	if err := locks[1].Renew(soon(t)); !errors.Is(err, zk.ErrNoAuth) || !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("renewal of a lock whose node may not be read: %v", err)
	}
	for i, lk := range locks {
		if i != 1 {
			if err := lk.Renew(soon(t)); err != nil {
				t.Errorf("another lock: %v", err)
			}
		}
		unlock(t, lk)
	}
}

// sessions counts those on which locks hang.
func sessions(t *testing.T, conn *zk.Conn) (n int) {
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
