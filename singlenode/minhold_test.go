package singlenode_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// keptAndServed has a job end at once, which is to hold for a while, and checks that the
// waiter gets the lock after that and not much later: 20 s, where a lease that would be
// waited for has an hour.
func keptAndServed(t *testing.T, job locker.Locker, hold, ttl time.Duration, wait func() <-chan grant) {
	t.Helper()
	began := time.Now()
	held := mustLock(t, job, "a", locker.WithMinHold(hold), locker.WithTTL(ttl))
	grants := wait()
	mustUnlock(t, held)
	if _, err := job.TryLock(patience(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock after Unlock: %v", err)
	}
	g := next(t, grants)
	if d := time.Since(began); d < hold {
		t.Errorf("granted after %v, the last holder wants it for %v", d, hold)
	}
	if g.lock.Token() <= held.Token() {
		t.Errorf("token %d after %d", g.lock.Token(), held.Token())
	}
	mustUnlock(t, g.lock)
}

// The first in the queue was stopped: it is told, and does not look.
func TestWaiterBehindAStoppedOneIsServedWhenTheMinimumHoldIsOver(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	job, l := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	stopped := rdb.Subscribe(patience(t), "lockstile:w:stopped")
	defer stopped.Close()
	if _, err := stopped.Receive(patience(t)); err != nil {
		t.Fatal(err)
	}
	keptAndServed(t, job, 2*time.Second, time.Hour, func() <-chan grant {
		srv.Do("ZADD", "lockstile:q:{a}", "1", "one:stopped")
		return waitBehind(t, srv, "a", 1, l)
	})
}

func TestWaiterInAClusterIsServedWhenTheMinimumHoldIsOver(t *testing.T) {
	t.Parallel()
	servers := testserver.RedisCluster(t, 2)
	job, l := newClusterLocker(t, servers), newClusterLocker(t, servers)
	keptAndServed(t, job, 2*time.Second, time.Hour, func() <-chan grant { return waitIn(t, job, "a", l) })
}
