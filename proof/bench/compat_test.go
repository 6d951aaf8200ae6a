package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
	"github.com/lockstile/locker/singlenode"
)

// patient is long enough for any machine and short enough to fail a test.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// nodes starts so many servers and returns a client of each. Clients of a
// library of their own stand for other processes.
func nodes(t *testing.T, n int) func() []*redis.Client {
	var addrs []string
	for range n {
		addrs = append(addrs, testserver.Redis(t).Addr())
	}
	return func() []*redis.Client {
		var rdbs []*redis.Client
		for _, addr := range addrs {
			rdbs = append(rdbs, redis.NewClient(&redis.Options{Addr: addr}))
		}
		t.Cleanup(func() { closeRedis(rdbs) })
		return rdbs
	}
}

func TestRedlockAndRedsyncExcludeEachOther(t *testing.T) {
	connect := nodes(t, redisNodes)
	var masters []redis.UniversalClient
	for _, rdb := range connect() {
		masters = append(masters, rdb)
	}
	// A node may be slow on a busy machine; that is not what is tested.
	l, err := redlock.New(masters, redlock.Options{DurableNodes: true, NodeTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	excludeEachOther(t, l, redsync.New(pools(connect())...))
}

func TestSinglenodeAndRedsyncExcludeEachOther(t *testing.T) {
	connect := nodes(t, 1)
	l, err := singlenode.New(connect()[0], singlenode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	excludeEachOther(t, l, redsync.New(pools(connect())...))
}

func excludeEachOther(t *testing.T, l inspector, rs *redsync.Redsync) {
	t.Run("they hold it", func(t *testing.T) { theyHoldIt(t, l, rs) })
	t.Run("we hold it", func(t *testing.T) { weHoldIt(t, l, rs) })
	t.Run("we wait for them", func(t *testing.T) { weWaitForThem(t, l, rs) })
	t.Run("they wait for us", func(t *testing.T) { theyWaitForUs(t, l, rs) })
}

func mutex(rs *redsync.Redsync, name string) *redsync.Mutex {
	// Its time for one node is a share of the expiry.
	return rs.NewMutex(name, redsync.WithExpiry(time.Minute), redsync.WithRetryDelay(time.Millisecond), redsync.WithTries(1<<30))
}

func theyHoldIt(t *testing.T, l locker.Locker, rs *redsync.Redsync) {
	ctx := patient(t)
	m := mutex(rs, "theirs")
	if err := m.TryLockContext(ctx); err != nil {
		t.Fatal(err)
	}
	if lock, err := l.TryLock(ctx, "theirs"); !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("while redsync holds it we got %v, error %v", lock, err)
	}
	release(t, m)
	lock, err := l.TryLock(ctx, "theirs")
	if err != nil {
		t.Fatalf("after redsync has released it: %v", err)
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

func weHoldIt(t *testing.T, l locker.Locker, rs *redsync.Redsync) {
	ctx := patient(t)
	lock, err := l.TryLock(ctx, "ours")
	if err != nil {
		t.Fatal(err)
	}
	m := mutex(rs, "ours")
	if err := m.TryLockContext(ctx); !isTaken(err) {
		t.Fatalf("while we hold it redsync got it or failed: %v", err)
	}
	if err := lock.Renew(ctx); err != nil {
		t.Errorf("after redsync has tried: %v", err)
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.TryLockContext(ctx); err != nil {
		t.Fatalf("after we have released it: %v", err)
	}
	release(t, m)
}

// inspector is a Locker that says who waits, as all of ours do.
type inspector interface {
	locker.Locker
	locker.Inspector
}

func weWaitForThem(t *testing.T, l inspector, rs *redsync.Redsync) {
	ctx := patient(t)
	m := mutex(rs, "awaited")
	if err := m.TryLockContext(ctx); err != nil {
		t.Fatal(err)
	}
	granted := make(chan error, 1)
	var lock *locker.Lock
	go func() {
		var err error
		lock, err = l.Lock(ctx, "awaited")
		granted <- err
	}()
	for {
		info, err := l.Inspect(ctx, "awaited")
		if err != nil {
			t.Fatal(err)
		}
		if info.Waiters == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-granted:
		t.Fatalf("we wait no longer, though redsync holds it: %v", err)
	default:
	}
	release(t, m) // which tells nobody, and the lease has most of a minute left
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	if ok, err := m.ExtendContext(ctx); ok {
		t.Errorf("while we hold it redsync extended its own: %v", err)
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

func theyWaitForUs(t *testing.T, l locker.Locker, rs *redsync.Redsync) {
	ctx := patient(t)
	lock, err := l.TryLock(ctx, "polled")
	if err != nil {
		t.Fatal(err)
	}
	m := mutex(rs, "polled")
	refused, granted := make(chan struct{}), make(chan error, 1)
	go func() {
		if err := m.TryLockContext(ctx); isTaken(err) {
			close(refused)
		}
		granted <- m.LockContext(ctx)
	}()
	select {
	case <-refused:
	case <-ctx.Done():
		t.Fatal("redsync was not refused")
	}
	select {
	case err := <-granted:
		t.Fatalf("redsync waits no longer, though we hold it: %v", err)
	default:
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	if lock, err := l.TryLock(ctx, "polled"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("while redsync holds it we got %v, error %v", lock, err)
	}
	release(t, m)
}

// isTaken tells that others hold the lock from nodes that did not answer.
func isTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken)
}

func release(t *testing.T, m *redsync.Mutex) {
	t.Helper()
	if ok, err := m.UnlockContext(t.Context()); !ok || err != nil {
		t.Fatalf("redsync released: %v, error %v", ok, err)
	}
}
