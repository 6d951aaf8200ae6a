package docs_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

func newLocker(t *testing.T, addr, prefix string) *singlenode.Locker {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	locks, err := singlenode.New(rdb, singlenode.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(locks.Close(), rdb.Close()) })
	return locks
}

func mustLock(t *testing.T, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lock, err := l.TryLock(soon(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// waiter waits for a lock and gives it back, and is in the queue when this returns.
func waiter(t *testing.T, srv *testserver.RedisServer, l *singlenode.Locker, name string) <-chan error {
	t.Helper()
	ctx, got := soon(t), make(chan error, 1)
	go func() {
		got <- locker.Do(ctx, l, name, func(context.Context, *locker.Lock) error { return nil })
	}()
	srv.Await("one that waits", func() bool {
		info, err := l.Inspect(ctx, name)
		return err == nil && info.Waiters == 1
	})
	return got
}

func TestTenantsLocksOfOneNameDoNotMeet(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	mustLock(t, newLocker(t, srv.Addr(), "acme/"), "report")
	mustLock(t, newLocker(t, srv.Addr(), "a/"), "b/report") // the tenant "a" has it, and "a/b" is another tenant
	p := start(t, []string{"REDIS_ADDR=" + srv.Addr()}, "tenants", "acme", "globex", "a/b")
	p.Ends(0)
	for _, want := range []string{"globex has its report", "a/b has its report", `acme: singlenode: lock "report": taken`} {
		if p.Count(want) != 1 {
			t.Errorf("%q is not in:\n%s", want, p.Said())
		}
	}
}

// The page's line of permissions lets a tenant's user lock, and touch nothing of another's.
func TestTenantsUserReachesOnlyItsOwnLocks(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	_, rules, found := strings.Cut(page(t, recipes), "a Redis user for each tenant: `")
	rules, _, closed := strings.Cut(rules, "`")
	if !found || !closed {
		t.Fatal("the page has no permissions for a tenant's user")
	}
	srv.Do(append([]string{"ACL", "SETUSER", "acme", "on", ">secret", "+@all"}, strings.Fields(rules)...)...)
	mustLock(t, newLocker(t, srv.Addr(), "globex/"), "report")

	p := start(t, []string{"REDIS_ADDR=" + srv.Addr(), "REDIS_USER=acme", "REDIS_PASSWORD=secret"}, "tenants", "acme", "globex")
	p.Ends(0)
	for _, want := range []string{"acme has its report", `globex: singlenode: lock "report": lock store unavailable: `} {
		if p.Count(want) != 1 {
			t.Errorf("%q is not in:\n%s", want, p.Said())
		}
	}
	waits(t, srv)
	others := strings.Fields(srv.Do("KEYS", "*globex*"))
	if len(others) < 2 {
		t.Errorf("the other tenant has only %q", others)
	}
	for _, key := range others {
		if answer := srv.Do("ACL", "DRYRUN", "acme", "DEL", key); !strings.Contains(answer, "no permissions") {
			t.Errorf("the user of another tenant may delete %s: %s", key, answer)
		}
	}
}

// waits checks that a tenant's user can also wait, which takes more keys and a channel.
func waits(t *testing.T, srv *testserver.RedisServer) {
	t.Helper()
	held := mustLock(t, newLocker(t, srv.Addr(), "acme/"), "report")
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "acme", Password: "secret"})
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := singlenode.New(rdb, singlenode.Options{Prefix: "acme/"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	got := waiter(t, srv, locks, "report")
	if err := held.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("the tenant's user cannot wait: %v", err)
	}
}
