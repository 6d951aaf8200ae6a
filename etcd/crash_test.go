package etcd_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
)

// TestLeaderIsKilledWhileTheLockIsHeldAndWaitedFor: the holder keeps the lock or
// hears of its loss, waiters of other processes are all served, and in the order
// of their tokens.
func TestLeaderIsKilledWhileTheLockIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 3)
	holder := newLocker(t, cluster.Endpoints()...)
	held := mustLock(t, holder, "x", locker.WithTTL(10*time.Second))
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		last    fencing.Token
		holders int
	)
	enter := func(lock *locker.Lock, by int) {
		mu.Lock()
		defer mu.Unlock()
		holders += by
		if holders > 1 {
			t.Error("two holders")
		}
		if by > 0 && lock.Token() <= last {
			t.Errorf("token %d was granted after %d", lock.Token(), last)
		}
		last = max(last, lock.Token())
	}
	enter(held, 1)
	for i := range 3 {
		l := newLocker(t, cluster.Endpoints()...)
		wg.Go(func() { serveOnce(t, l, enter) })
		until(t, "it waits", func() bool { return waiters(t, holder, "x") == i+1 })
	}
	cluster.Leader().Kill()
	cluster.Leader() // another one
	if err := held.Err(); err != nil && !errors.Is(err, locker.ErrLost) {
		t.Errorf("the holder: %v", err)
	}
	enter(held, -1)
	if err := held.Unlock(patience(t)); err != nil {
		t.Logf("unlock by the holder after the leader was killed: %v", err)
	}
	wg.Wait()
}

// serveOnce gets the lock once, trying again as a program would whose attempt met
// with the servers' change of leader.
func serveOnce(t *testing.T, l *etcd.Locker, enter func(*locker.Lock, int)) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		lock, err := l.Lock(ctx, "x", locker.WithTTL(10*time.Second))
		if err == nil {
			enter(lock, 1)
			enter(lock, -1)
			_ = lock.Unlock(ctx) // it may be unknown; the lease ends it
			return
		}
		if ctx.Err() != nil {
			t.Errorf("a waiter waits for ever: %v", err)
			return
		}
	}
}

func TestTokensIncreaseOverACrashOfTheWholeCluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 1)
	l := newLocker(t, cluster.Endpoints()...)
	var last fencing.Token
	for range 3 {
		lock := mustLock(t, l, "x", locker.WithTTL(5*short))
		if lock.Token() <= last {
			t.Errorf("token %d after %d", lock.Token(), last)
		}
		last = lock.Token()
		cluster.Members[0].Kill()
		cluster.Members[0].Start()
		_ = lock.Unlock(patience(t)) // whatever it knows
	}
}

// A lock that is held survives the crash of one member, the client's connection
// with it.
func TestLockIsKeptWhileAMajorityIsUp(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 3)
	l := newLocker(t, cluster.Endpoints()...)
	lock := mustLock(t, l, "x", locker.WithTTL(20*time.Second))
	since := lock.Deadline()
	for _, m := range cluster.Members {
		m.Kill()
		cluster.Leader()
		until(t, "it is renewed", func() bool {
			if err := lock.Renew(patience(t)); err != nil {
				if errors.Is(err, locker.ErrLost) {
					t.Fatal(err)
				}
				return false
			}
			return lock.Deadline().After(since)
		})
		since = lock.Deadline()
		m.Start()
	}
	mustUnlock(t, lock)
}

// TestWaiterIsServedThoughItsWatchIsOnAPausedServer: the watch is silent for as
// long as the connection lasts, so the waiter looks by itself.
func TestWaiterIsServedThoughItsWatchIsOnAPausedServer(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 3)
	b := newLocker(t, cluster.Endpoints()...)
	leader := cluster.Leader()
	a := newLocker(t, leader.Addr())
	for _, m := range cluster.Members { // b's watches are on any of them: all have their turn
		if m == leader {
			continue
		}
		held := mustLock(t, a, "x", locker.WithTTL(4*short))
		var told atomic.Bool
		got := lockLater(t, b, "x", locker.WithTTL(4*short), locker.WithObserver(func(e locker.Event) {
			if e.Type == locker.EventWaiting {
				told.Store(true) // a waiter that m has not told so yet would fail with m
			}
		}))
		until(t, "b waits", func() bool { return told.Load() && waiters(t, a, "x") == 1 })
		m.Pause()
		mustUnlock(t, held)
		select {
		case lock := <-got:
			m.Resume()
			if lock != nil {
				mustUnlock(t, lock)
			}
		case <-time.After(time.Minute):
			m.Resume()
			t.Error("the waiter was not served")
		}
	}
}

func TestLeaseIsRevokedWhenNobodyUsesIt(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	for ttl := 2; ttl < 6; ttl++ {
		mustUnlock(t, mustLock(t, l, "x", locker.WithTTL(time.Duration(ttl)*time.Second)))
	}
	kept := mustLock(t, l, "x", locker.WithTTL(short))
	until(t, "only the lease in use is left", func() bool { return leases(t, client) == 1 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := kept.Renew(patience(t)); err != nil {
		t.Errorf("a lock held while its Locker is closed: %v", err)
	}
	mustUnlock(t, kept)
	until(t, "the lease goes with the last lock", func() bool { return leases(t, client) == 0 })
}

func leases(t testing.TB, client *clientv3.Client) int {
	t.Helper()
	resp, err := client.Leases(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.Leases)
}

// The answer to a request for a lease may come when its caller has gone.
//
//	the first TryLock ends before the lease comes; then it comes; the second is
//	granted on it
func TestLeaseThatACallerDidNotWaitForIsTheNextOnes(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	proxy := conformance.NewProxy(t, srv.Addr())
	client := newClient(t, srv.Addr())
	l := newLocker(t, proxy.Addr())
	waiters(t, l, "x") // is asked over a connection that stays
	proxy.CutReplies()
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := l.TryLock(ctx, "x")
		failed <- err
	}()
	until(t, "the servers have granted a lease", func() bool { return leases(t, client) == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("before there is a lease: %v", err)
	}
	proxy.Deliver()
	mustUnlock(t, mustLock(t, l, "x"))
	if n := leases(t, client); n != 1 {
		t.Errorf("%d leases", n)
	}
}

// The time that a session takes to be made is none of the lock's: a maximum hold and a
// least validity count from when the lock is asked for, on a session that is there.
//
//	the answer to the request for a lease takes as long as the lock may be held
func TestLockCountsFromWhenItsSessionIsThere(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	client := newClient(t, srv.Addr())
	for _, opt := range []locker.Option{locker.WithMaxHold(2 * time.Second), locker.WithMinValidity(3 * time.Second)} {
		proxy := conformance.NewProxy(t, srv.Addr())
		l := newLocker(t, proxy.Addr())
		waiters(t, l, "x") // is asked over a connection that stays
		before := leases(t, client)
		proxy.CutReplies()
		var lock *locker.Lock
		done := make(chan error, 1)
		go func() {
			var err error
			lock, err = l.TryLock(patience(t), "x", locker.WithTTL(2*short), opt)
			done <- err
		}()
		until(t, "the servers have granted a lease", func() bool { return leases(t, client) > before })
		<-time.After(2 * time.Second) // this is how long the answer takes
		proxy.Deliver()
		if err := <-done; err != nil {
			t.Fatalf("TryLock whose session took two seconds: %v", err)
		}
		mustUnlock(t, lock)
	}
}
