package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/zookeeper"
)

// Whoever makes Lockers on one connection again and again must not fill the
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
	if n := anchors(t, c.conn); n > 0 {
		t.Errorf("%d nodes are left", n)
	}
}

// A caller that waits for the first connection waits no longer than the Locker
// lives.
//
//	the server is paused before the client has greeted it; Lock with Background;
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

// A lock whose node nobody may read any more is still there, and takes no other with it.
//
//	three names of one process; somebody sets an ACL on the node of the second
//	that allows nothing; all are renewed
func TestNodeThatMayNotBeReadLosesNoLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := newClient(t, 3*time.Second, s.Addr())
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

// The zk client keeps the session alive, and with it what a clean-up could not remove in
// the time that the Locker gives it.
//
//	a waiter behind a holder gives up while the network is cut, for longer than ten
//	seconds; the network heals, in the same session
func TestCleanUpGoesOnUntilTheNetworkIsBack(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := conformance.NewProxy(t, s.Addr())
	a, b := newClient(t, time.Minute, p.Addr()), newClient(t, time.Minute, s.Addr())
	minute := locker.WithTTL(time.Minute)
	held := lock(t, b, "n", minute)
	ctx, cancel := context.WithCancel(context.Background())
	waited := make(chan error, 1)
	go func() { _, err := a.Lock(ctx, "n", minute); waited <- err }()
	waiters(t, b, "n", 1)
	id := a.conn.SessionID()
	p.Cut()
	cancel()
	if err := <-waited; !errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("a waiter whose place may be left: %v", err)
	}
	<-time.After(12 * time.Second)
	p.Heal()
	waiters(t, b, "n", 0)
	if a.conn.SessionID() != id {
		t.Fatal("the session has ended: nothing is tested")
	}
	unlock(t, held)
}
