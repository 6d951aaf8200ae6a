package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
)

// patience bounds what tests wait for. Nothing is expected to take so long.
const patience = 90 * time.Second

// sessionTimeout of most tests is long, so that a slow machine loses no lock.
const sessionTimeout = 10 * time.Second

// client is a process, as far as the servers can tell.
type client struct {
	*zookeeper.Locker
	conn *zk.Conn
}

func newClient(t testing.TB, timeout time.Duration, addrs ...string) client {
	t.Helper()
	session := zookeeper.NewSession(nil)
	conn, _, err := zk.Connect(addrs, timeout, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return client{newLocker(t, conn, zookeeper.Options{Session: session}), conn}
}

func newLocker(t testing.TB, conn *zk.Conn, opts zookeeper.Options) *zookeeper.Locker {
	t.Helper()
	l, err := zookeeper.New(conn, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func server(t *testing.T) *testserver.ZooKeeperServer {
	t.Helper()
	return testserver.ZooKeeper(t, 1)[0]
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func lock(t *testing.T, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lk, err := l.Lock(soon(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

func unlock(t *testing.T, lk *locker.Lock) {
	t.Helper()
	if err := lk.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// waiters waits until the store knows of n waiters.
func waiters(t *testing.T, l locker.Inspector, name string, n int) {
	t.Helper()
	ctx := soon(t)
	for {
		info, err := l.Inspect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Waiters == n {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%d waiters, want %d", info.Waiters, n)
		}
	}
}

func TestLockExcludesAndTokensIncrease(t *testing.T) {
	s := server(t)
	a, b := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	first := lock(t, a, "n", locker.WithHolder("me"))
	if _, err := b.TryLock(soon(t), "n"); !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("TryLock of a held name: %v, want ErrTaken", err)
	}
	info, err := b.Inspect(soon(t), "n")
	want := locker.Info{Name: "n", Held: true, Holder: "me", Token: first.Token(), TimeLeft: sessionTimeout}
	if err != nil || info != want {
		t.Errorf("Inspect = %+v, %v; want %+v", info, err, want)
	}
	unlock(t, first)
	second := lock(t, b, "n")
	if second.Token() <= first.Token() {
		t.Errorf("tokens %d, then %d", first.Token(), second.Token())
	}
	unlock(t, second)
	if info, err := a.Inspect(soon(t), "n"); err != nil || info.Held {
		t.Errorf("Inspect after unlock = %+v, %v", info, err)
	}
}

func TestLockAndUnlockTakeOneRoundTripEach(t *testing.T) {
	s := server(t)
	c := newClient(t, time.Minute, s.Addr()) // no pings on the way
	unlock(t, lock(t, c, "n", locker.WithTTL(time.Minute)))
	before := s.Stat("zk_packets_received")
	lk := lock(t, c, "n", locker.WithTTL(time.Minute))
	locked := s.Stat("zk_packets_received")
	unlock(t, lk)
	unlocked := s.Stat("zk_packets_received")
	// The look itself is one packet.
	if n := locked - before - 1; n != 1 {
		t.Errorf("Lock took %d requests", n)
	}
	if n := unlocked - locked - 1; n != 1 {
		t.Errorf("Unlock took %d requests", n)
	}
}

func TestWaitersOfManyProcessesAreServedInOrderOfArrival(t *testing.T) {
	s := server(t)
	const n = 8
	holder := newClient(t, sessionTimeout, s.Addr())
	held := lock(t, holder, "n")
	served := make(chan int, n)
	var all sync.WaitGroup
	defer all.Wait()
	for i := range n {
		c := newClient(t, sessionTimeout, s.Addr())
		all.Go(func() {
			lk, err := c.Lock(soon(t), "n")
			if err != nil {
				t.Error(err)
			} else {
				served <- i
				if err := lk.Unlock(soon(t)); err != nil {
					t.Error(err)
				}
			}
		})
		waiters(t, holder, "n", i+1)
	}
	unlock(t, held)
	for i := range n {
		select {
		case got := <-served:
			if got != i {
				t.Errorf("turn %d went to waiter %d", i, got)
			}
		case <-soon(t).Done():
			t.Fatal("a waiter was not served")
		}
	}
}

func TestHostileNamesAreLocksOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	names := []string{
		".", "..", "/", "//", "a/b", "a%2Fb", "%", "%2E", "...", "zookeeper", " ", "\n\t\x01\x7f\u0085",
		"größe", "鍵", "🔒", "\uf8ff\ufff0\uffff\ufffd", "lock-0000000000", "_c_x-lock-1", "%session-1",
		strings.Repeat("/", locker.MaxName), strings.Repeat("x", locker.MaxName),
	}
	seen := make(map[string]bool)
	for _, name := range names {
		lk := lock(t, c, name)
		info, err := c.Inspect(soon(t), name)
		if err != nil || !info.Held || info.Token != lk.Token() {
			t.Errorf("Inspect(%.20q) = %+v, %v", name, info, err)
		}
		seen[fmt.Sprint(lk.Token())] = true
	}
	children, _, err := c.conn.Children(zookeeper.DefaultBase)
	if err != nil || len(children) != len(names)+1 { // and the anchor
		t.Errorf("%d names made %d nodes %q, error %v", len(names), len(children), children, err)
	}
}
