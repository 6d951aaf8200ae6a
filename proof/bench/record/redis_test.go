package record

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
	"github.com/lockstile/locker/singlenode"
)

// hour is a lease that does not end within a test.
const hour = time.Hour

// redsyncReady locks another name once, and unlocks it.
func redsyncReady(t *testing.T, rs *redsync.Redsync) func() {
	return func() {
		t.Helper()
		m := rs.NewMutex("another")
		if err := m.LockContext(patient(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.UnlockContext(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// stays fails the test if the key goes, as it would if something cleaned up in the background.
func stays(t *testing.T, rdb *redis.Client, key string) {
	t.Helper()
	gone := func() bool { return rdb.Exists(patient(t), key).Val() == 0 }
	if within(3*time.Second, gone) {
		mended(t, "the key was removed")
	}
	t.Logf("nobody holds the lock, and nobody gets it for %v", rdb.PTTL(patient(t), key).Val().Round(time.Minute))
}

// oursLeavesNothing is the same story with our backend.
func oursLeavesNothing(t *testing.T, net *netproxy.Proxy, direct *redis.Client) {
	l := made[*singlenode.Locker](t)(singlenode.New(redisAt(t, net.Addr()), singlenode.Options{}))
	unheard(t, net, ready(t, l), func(ctx context.Context) error {
		lock, err := l.TryLock(ctx, "ours", locker.WithTTL(hour))
		if err == nil {
			_ = lock.Unlock(patient(t))
		}
		return err
	}, func() bool { return direct.Exists(patient(t), "ours").Val() == 1 })
	other := made[*singlenode.Locker](t)(singlenode.New(direct, singlenode.Options{}))
	lock := locked(t)(other.Lock(patient(t), "ours"))
	if err := lock.Unlock(patient(t)); err != nil {
		t.Error(err)
	}
}

// TestRedislockLeavesItsKeyIfTheAnswerIsLost: the sister of leandromoreira/redlock-rb #76.
func TestRedislockLeavesItsKeyIfTheAnswerIsLost(t *testing.T) {
	srv := testserver.Redis(t)
	direct := redisAt(t, srv.Addr())
	t.Run("theirs", func(t *testing.T) {
		net := network(t, srv.Addr())
		locks := redislock.New(redisAt(t, net.Addr()))
		ready := func() {
			lock, err := locks.Obtain(patient(t), "another", hour, nil)
			if err != nil || lock.Release(patient(t)) != nil {
				t.Fatal(err)
			}
		}
		unheard(t, net, ready, func(ctx context.Context) error {
			_, err := locks.Obtain(ctx, "theirs", hour, nil)
			return err
		}, func() bool { return direct.Exists(patient(t), "theirs").Val() == 1 })
		stays(t, direct, "theirs")
	})
	t.Run("ours", func(t *testing.T) { oursLeavesNothing(t, network(t, srv.Addr()), direct) })
}

// TestRedsyncLeavesItsKeyIfTheContextEnds: it gives back with the context that has ended.
func TestRedsyncLeavesItsKeyIfTheContextEnds(t *testing.T) {
	srv := testserver.Redis(t)
	direct := redisAt(t, srv.Addr())
	t.Run("theirs", func(t *testing.T) {
		net := network(t, srv.Addr())
		rs := redsync.New(goredis.NewPool(redisAt(t, net.Addr())))
		unheard(t, net, redsyncReady(t, rs), func(ctx context.Context) error {
			return rs.NewMutex("theirs", redsync.WithExpiry(hour)).TryLockContext(ctx)
		}, func() bool { return direct.Exists(patient(t), "theirs").Val() == 1 })
		stays(t, direct, "theirs")
	})
	t.Run("ours", func(t *testing.T) { oursLeavesNothing(t, network(t, srv.Addr()), direct) })
}

// TestRedsyncCallsItsOwnLockTaken: go-redis sends a request again whose connection broke, and
// the key that the first one has set is taken for somebody else's.
func TestRedsyncCallsItsOwnLockTaken(t *testing.T) {
	srv := testserver.Redis(t)
	direct := redisAt(t, srv.Addr())
	// broken locks, and breaks the connection when the key is there and the answer is not.
	broken := func(t *testing.T, net *netproxy.Proxy, ready func(), key string, lock func(context.Context) error) error {
		ready()
		net.CutReplies()
		done := calling(func() error { return lock(patient(t)) })
		await(t, "the key is set", func() bool { return direct.Exists(patient(t), key).Val() == 1 })
		net.Heal()
		return <-done
	}
	t.Run("theirs", func(t *testing.T) {
		net := network(t, srv.Addr())
		rs := redsync.New(goredis.NewPool(redisAt(t, net.Addr())))
		err := broken(t, net, redsyncReady(t, rs), "theirs", rs.NewMutex("theirs", redsync.WithExpiry(hour)).TryLockContext)
		var taken *redsync.ErrTaken
		if !errors.As(err, &taken) {
			mended(t, "TryLock says: %v", err)
		}
		t.Logf("nobody else has ever asked for it: %v", err)
	})
	t.Run("ours", func(t *testing.T) {
		net := network(t, srv.Addr())
		l := made[*singlenode.Locker](t)(singlenode.New(redisAt(t, net.Addr()), singlenode.Options{}))
		if err := broken(t, net, ready(t, l), "ours", func(ctx context.Context) error {
			_, err := l.TryLock(ctx, "ours", locker.WithTTL(hour))
			return err
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestRedsyncGivesAHeldLockAwayWhenANodeRestarts is what the page of the Redlock algorithm
// warns of: a node that has forgotten its keys must stay away for the longest lease.
func TestRedsyncGivesAHeldLockAwayWhenANodeRestarts(t *testing.T) {
	const away = "127.0.0.1:1" // where nobody listens: this client does not reach that node
	redis.SetLogger(silent{})  // it logs each attempt to reach it
	t.Run("theirs", func(t *testing.T) {
		first, forgets, last := testserver.Redis(t), testserver.Redis(t), testserver.Redis(t)
		mutex := func(addrs ...string) *redsync.Mutex {
			return redsync.New(poolsAt(t, addrs)...).NewMutex("theirs", redsync.WithExpiry(hour))
		}
		one, other := mutex(first.Addr(), forgets.Addr(), away), mutex(away, forgets.Addr(), last.Addr())
		if err := one.LockContext(patient(t)); err != nil {
			t.Fatal(err)
		}
		forgets.Kill()
		forgets.Wipe()
		forgets.Start()
		if err := other.LockContext(patient(t)); err != nil {
			mended(t, "the second Lock says: %v", err)
		}
		t.Logf("two hold the lock, one until %v, the other until %v", one.Until(), other.Until())
	})
	t.Run("ours", func(t *testing.T) {
		first, forgets, last := testserver.Redis(t), testserver.Redis(t), testserver.Redis(t)
		process := func(addrs ...string) *redlock.Locker {
			var nodes []redis.UniversalClient
			for _, addr := range addrs {
				nodes = append(nodes, redisAt(t, addr))
			}
			return made[*redlock.Locker](t)(redlock.New(nodes, redlock.Options{MaxTTL: 4 * time.Second, NodeTimeout: time.Second}))
		}
		one, other := process(first.Addr(), forgets.Addr(), away), process(away, forgets.Addr(), last.Addr())
		held := locked(t)(one.Lock(patient(t), "ours", locker.WithTTL(4*time.Second)))
		forgets.Kill()
		forgets.Wipe()
		forgets.Start()
		_ = locked(t)(other.Lock(patient(t), "ours", locker.WithTTL(4*time.Second)))
		if held.Err() == nil {
			t.Error("two believe that they hold the lock")
		}
	})
}

func poolsAt(t *testing.T, addrs []string) (pools []redsyncredis.Pool) {
	for _, addr := range addrs {
		pools = append(pools, goredis.NewPool(redisAt(t, addr)))
	}
	return pools
}
