package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// Nodes are down here on purpose: go-redis need not say so.
func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// patient is for tests that are not about time: the machine may be slow.
var patient = redlock.Options{NodeTimeout: 20 * time.Second, DurableNodes: true}

func startNodes(t testing.TB, n int) []*testserver.RedisServer {
	t.Helper()
	servers := make([]*testserver.RedisServer, n)
	for i := range servers {
		servers[i] = testserver.Redis(t)
	}
	return servers
}

// newLocker stands for a process of its own, with default client settings.
func newLocker(t testing.TB, servers []*testserver.RedisServer, opts redlock.Options) *redlock.Locker {
	t.Helper()
	clients := make([]redis.UniversalClient, len(servers))
	for i, s := range servers {
		clients[i] = redis.NewClient(&redis.Options{Addr: s.Addr()})
	}
	return newLockerOn(t, clients, opts)
}

func newLockerOn(t testing.TB, clients []redis.UniversalClient, opts redlock.Options) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(clients, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		for _, c := range clients {
			_ = c.Close()
		}
	})
	return l
}

func patience(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustLock(t testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lock, err := l.Lock(patience(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// mustLockOn locks until all of the servers have granted it: Lock does not wait for those
// that come after the majority, and a node that a slow machine gives up is not asked.
func mustLockOn(t testing.TB, l *redlock.Locker, servers []*testserver.RedisServer, opts ...locker.Option) (lock *locker.Lock) {
	t.Helper()
	eventually(t, "granted by all nodes", func() bool {
		lock = lockOn(t, l, servers, opts...)
		return lock != nil
	})
	return lock
}

// lockOn is one attempt at that. It returns nil, and holds nothing, if not all of the
// servers have granted the lock.
func lockOn(t testing.TB, l *redlock.Locker, servers []*testserver.RedisServer, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lock, err := l.Lock(patience(t), "a", opts...)
	if errors.Is(err, locker.ErrUnavailable) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	all := func() bool {
		return !slices.ContainsFunc(servers, func(s *testserver.RedisServer) bool { return s.Do("EXISTS", "a") != "1" })
	}
	eventually(t, "granted there too", func() bool { return redlock.UnderWay(l) == 0 || all() })
	if all() {
		return lock
	}
	_ = lock.Unlock(patience(t))
	return nil
}

// mustRenew renews until the lock is renewed, or lost: answers may take longer than a
// renewal has.
func mustRenew(t testing.TB, lock *locker.Lock) {
	t.Helper()
	var err error
	eventually(t, "renewed or lost", func() bool {
		err = lock.Renew(patience(t))
		return !errors.Is(err, locker.ErrUnavailable)
	})
	if err != nil {
		t.Error(err)
	}
}

func mustUnlock(t testing.TB, lock *locker.Lock) {
	t.Helper()
	if err := lock.Unlock(patience(t)); err != nil {
		t.Error(err)
	}
}

// eventually waits for something that other goroutines or servers do, for less
// than the half minute after which a lease ends by itself.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	pause := time.Millisecond
	for deadline := time.Now().Add(25 * time.Second); !done(); time.Sleep(pause) {
		pause = min(2*pause, 20*time.Millisecond)
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s", what)
		}
	}
}

// free waits until none of the servers has the name.
func free(t testing.TB, name string, servers ...*testserver.RedisServer) {
	t.Helper()
	for i, s := range servers {
		eventually(t, fmt.Sprintf("%q is free on node %d", name, i), func() bool { return s.Do("EXISTS", name) == "0" })
	}
}

func calls(srv *testserver.RedisServer, cmd string) (n int) {
	for line := range strings.Lines(srv.Do("INFO", "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+cmd+":calls="); ok {
			_, _ = fmt.Sscanf(rest, "%d", &n)
		}
	}
	return n
}

func TestLockAndUnlockAreOneRoundTripToEachNode(t *testing.T) {
	t.Run("exclusive", func(t *testing.T) { checkRoundTrips(t) })
	t.Run("shared", func(t *testing.T) { checkRoundTrips(t, reading) })
}

func checkRoundTrips(t *testing.T, kind ...locker.Option) {
	servers := startNodes(t, 5)
	l := newLocker(t, servers, patient)
	for _, s := range servers {
		eventually(t, "the scripts are known", func() bool {
			mustUnlock(t, mustLock(t, l, "a", kind...)) // more than once: a slow node may not even be asked
			return calls(s, "eval") >= 2
		})
	}
	eventually(t, "the stragglers are done", func() bool { return redlock.UnderWay(l) == 0 })
	for _, s := range servers {
		s.Do("CONFIG", "RESETSTAT")
	}
	const rounds = 50
	const raises = rounds / 5 // now and then a token has to be raised, by a script that a node may not know yet
	for range rounds {
		mustUnlock(t, mustLock(t, l, "a", kind...))
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for i, s := range servers {
		if s.Do("EXISTS", "a") != "0" {
			t.Errorf("node %d was asked after the release", i)
		}
		if n, text := calls(s, "evalsha"), calls(s, "eval"); n+text > 2*rounds+raises || text > rounds+raises {
			t.Errorf("node %d: %d requests in %d rounds\n%s", i, n, rounds, s.Do("INFO", "commandstats"))
		}
	}
}
