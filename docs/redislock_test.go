package docs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// lease is longer than any wait here: who gets the lock gets it because it was released.
const lease = 10 * time.Minute

func TestRedislockAndWeExcludeEachOther(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	ours := newLocker(t, srv.Addr(), "")
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	theirs := redislock.New(rdb)
	t.Run("they hold it, and we wait", func(t *testing.T) { weWaitForRedislock(t, srv, ours, theirs) })
	t.Run("we hold it, and they wait", func(t *testing.T) { redislockWaitsForUs(t, ours, theirs) })
	t.Run("we keep it for a minimum", func(t *testing.T) { redislockIsKeptOut(t, ours, theirs) })
}

func weWaitForRedislock(t *testing.T, srv *testserver.RedisServer, ours *singlenode.Locker, theirs *redislock.Client) {
	held, err := theirs.Obtain(soon(t), "a", lease, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("while redislock holds it: %v", err)
	}
	got := waiter(t, srv, ours, "a")
	select {
	case err := <-got:
		t.Fatalf("we wait no longer, though redislock holds it: %v", err)
	default:
	}
	if err := held.Release(soon(t)); err != nil {
		t.Fatalf("after we have tried: %v", err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func redislockWaitsForUs(t *testing.T, ours *singlenode.Locker, theirs *redislock.Client) {
	held := mustLock(t, ours, "b")
	if _, err := theirs.Obtain(soon(t), "b", lease, nil); !errors.Is(err, redislock.ErrNotObtained) {
		t.Fatalf("while we hold it redislock got it or failed: %v", err)
	}
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("after redislock has tried: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		lock, err := theirs.Obtain(soon(t), "b", lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
		if err == nil {
			_, err = ours.TryLock(soon(t), "b")
			if errors.Is(err, locker.ErrTaken) {
				err = lock.Release(soon(t))
			}
		}
		got <- err
	}()
	if err := held.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// What we keep is kept from them, too.
func redislockIsKeptOut(t *testing.T, ours *singlenode.Locker, theirs *redislock.Client) {
	if err := mustLock(t, ours, "c", locker.WithMinHold(lease)).Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Obtain(soon(t), "c", lease, nil); !errors.Is(err, redislock.ErrNotObtained) {
		t.Errorf("in the minimum hold redislock got it or failed: %v", err)
	}
}

// Redisson keeps a hash, with a field for each thread that holds the lock. What is said of
// its own side follows from HEXISTS, which it asks first.
func TestALockOfRedissonIsAnErrorHere(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	ours := newLocker(t, srv.Addr(), "")
	srv.Do("HSET", "theirs", "5c9a7f52-6d3b-4a55-9b3e-1f0e8d6c2b11:1", "1")
	if _, err := ours.TryLock(soon(t), "theirs"); err == nil || errors.Is(err, locker.ErrTaken) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("the page says that this is an error with WRONGTYPE: %v", err)
	}
	mustLock(t, ours, "ours")
	if _, err := srv.TryDo("HEXISTS", "ours", "5c9a7f52-6d3b-4a55-9b3e-1f0e8d6c2b11:1"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("the page says that Redisson gets an error with WRONGTYPE: %v", err)
	}
}
