package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
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
	left, _, err := c.conn.Children(zookeeper.DefaultBase)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	for _, node := range left {
		if strings.HasPrefix(node, "%session-") {
			t.Errorf("%q is left", node)
		}
	}
}

// Close waits for a few seconds, however many clean-ups there are that the
// servers do not answer.
//
//	twenty waiters of as many names are cancelled while the network is cut; each
//	leaves a clean-up; then Close, for which each is tried once more
func TestCloseDoesNotWaitForEveryCleanUpInTurn(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := conformance.NewProxy(t, s.Addr())
	a, b := newClient(t, time.Minute, p.Addr()), newClient(t, time.Minute, s.Addr())
	const n = 20
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	minute := locker.WithTTL(time.Minute)
	for i := range n {
		name := fmt.Sprint("n", i)
		lock(t, b, name, minute)
		all.Go(func() {
			if _, err := a.Lock(ctx, name, minute); err == nil {
				t.Error("two holders")
			}
		})
		waiters(t, b, name, 1)
	}
	p.Cut()
	cancel()
	all.Wait()
	begun := time.Now()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("Close took %v", took)
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
	for ctx := soon(t); c.conn.State() != zk.StateConnected; { // as far as TCP
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatal("not connected")
		}
	}
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

// One lock whose node nobody may read any more must not take others with it.
//
//	three names of one process; somebody sets an ACL on the node of the second
//	that allows nothing; all are renewed in one transaction
func TestNodeThatMayNotBeReadLosesNoOtherLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := newClient(t, 3*time.Second, s.Addr())
	var locks []*locker.Lock
	for i := range 3 {
		locks = append(locks, lock(t, c, fmt.Sprint("n", i)))
	}
	parent := zookeeper.DefaultBase + "/n1"
	children, _, err := c.conn.Children(parent)
	if err != nil || len(children) != 1 {
		t.Fatalf("children %q, %v", children, err)
	}
	nobody := zk.DigestACL(zk.PermAll, "some", "body")
	if _, err := c.conn.SetACL(parent+"/"+children[0], nobody, -1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-locks[1].Lost():
	case <-soon(t).Done():
		t.Fatal("not lost")
	}
	for _, i := range []int{0, 2} {
		if err := locks[i].Renew(soon(t)); err != nil {
			t.Errorf("another lock: %v", err)
		}
		unlock(t, locks[i])
	}
}

// A thousand waiters that come and go leave nodes, watches and goroutines to
// nobody.
func TestAThousandWaitersThatWereCancelledLeaveNothing(t *testing.T) {
	s := server(t)
	a, b := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, a, "n")
	before := runtime.NumGoroutine()
	for range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := b.Lock(ctx, "n"); !errors.Is(err, context.Canceled) { // the first may not have been told yet
					t.Errorf("a cancelled waiter: %v", err)
				}
			})
		}
		waiters(t, a, "n", 1)
		cancel()
		all.Wait()
	}
	b.AwaitSweeps()
	waiters(t, a, "n", 0)
	if n := s.Stat("zk_watch_count"); n > 5 {
		t.Errorf("%d watches", n)
	}
	if more := runtime.NumGoroutine() - before; more > 20 {
		t.Errorf("%d goroutines more", more)
	}
	unlock(t, held)
}
