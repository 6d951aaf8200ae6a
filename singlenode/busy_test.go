package singlenode_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing/redisfence"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// What a server says while somebody's script runs, while it has too few replicas for writes, or too
// many connections, passes by itself. It ends no wait, and no program's attempts.
func TestARefusalThatPassesByItselfEndsNoWait(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end func(t *testing.T, srv *testserver.RedisServer)
		says       string
	}{
		"a script runs": {
			busy,
			func(_ *testing.T, srv *testserver.RedisServer) { srv.Do("SCRIPT", "KILL") },
			"BUSY",
		},
		"too few replicas": {
			func(_ *testing.T, srv *testserver.RedisServer) { srv.Do("CONFIG", "SET", "min-replicas-to-write", "1") },
			func(_ *testing.T, srv *testserver.RedisServer) { srv.Do("CONFIG", "SET", "min-replicas-to-write", "0") },
			"NOREPLICAS",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testserver.Redis(t)
			holder, waiter := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
			mustLock(t, holder, "a", locker.WithTTL(time.Second), locker.WithoutRenewal()) // so the waiter asks in a second
			granted := make(chan error, 1)
			go func() {
				lock, err := waiter.Lock(patience(t), "a")
				if err == nil {
					err = lock.Unlock(context.Background())
				}
				granted <- err
			}()
			until(t, "it waits", func() bool { return srv.Do("ZCARD", "lockstile:q:{a}") == "1" })
			c.begin(t, srv)
			_, err := newLocker(t, srv.Addr(), singlenode.Options{}).TryLock(patience(t), "b")
			if err == nil || !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("TryLock: refused for good: %v: %v", errors.Is(err, locker.ErrRefused), err)
			}
			select {
			case err := <-granted:
				t.Errorf("the wait has ended: %v", err)
			case <-time.After(1500 * time.Millisecond):
			}
			c.end(t, srv)
			select {
			case err := <-granted:
				if err != nil {
					t.Errorf("the wait has ended: %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Error("the waiter was not served")
			}
		})
	}
}

// busy has a script run that ends with SCRIPT KILL.
func busy(t *testing.T, srv *testserver.RedisServer) {
	t.Helper()
	srv.Do("CONFIG", "SET", "busy-reply-threshold", "1")
	other := redis.NewClient(&redis.Options{Addr: srv.Addr(), ReadTimeout: -1})
	t.Cleanup(func() { _ = other.Close() })
	go func() { _ = other.Eval(context.Background(), "while true do end", nil).Err() }()
	until(t, "the server to be busy", func() bool {
		_, err := srv.TryDo("PING")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
}

// A program ends its work while somebody's script runs, and then itself. The script ends within
// the time for which Close waits.
func TestAnUnlockThatFindsAScriptIsTriedAgainUntilCloseReturns(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	lock := mustLock(t, l, "a")
	busy(t, srv)
	if err := lock.Unlock(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Unlock: %v", err)
	}
	time.AfterFunc(500*time.Millisecond, func() { srv.Do("SCRIPT", "KILL") })
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if held := srv.Do("EXISTS", "a"); held != "0" {
		t.Error("the lock stays for its TTL, held by nobody")
	}
}

// Data stands where a lock's key is: the first word of a user who gives both the same name.
// (A Lock whose context ends while it asks says "taken" alone: see TestDataUnderTheNameIsSaidToAWaitThatEnds.)
func TestDataUnderTheNameOfALockIsNamed(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	srv.Do("SET", "a", "the data")
	if _, err := l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) || !strings.Contains(err.Error(), "has no expiry and is no lock of ours") {
		t.Errorf("TryLock: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := l.Lock(ctx, "a"); !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock: %v", err)
	}
	info, err := l.Inspect(t.Context(), "a")
	if err != nil || !info.Held || !strings.Contains(info.Holder, "no expiry") {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if broken, err := l.Break(t.Context(), "a"); broken || !errors.Is(err, locker.ErrTaken) || !strings.Contains(err.Error(), "no lock of ours") || srv.Do("GET", "a") != "the data" {
		t.Errorf("Break: %v, %v, and the data is %q", broken, err, srv.Do("GET", "a"))
	}
}

// The lock's key is the lock: a write there would make it nobody's, for ever.
func TestAGuardWritesNoDataOverALock(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	l := newLockerOn(t, rdb, singlenode.Options{})
	guard, err := redisfence.NewGuard(rdb)
	if err != nil {
		t.Fatal(err)
	}
	lock := mustLock(t, l, "a")
	was := srv.Do("GET", "a")
	for _, command := range []string{"SET", "GET"} {
		if _, err := guard.Do(t.Context(), "a", lock.Token(), command, "x"); err == nil || !strings.Contains(err.Error(), "it is the name of a lock on this server") {
			t.Errorf("%s on the lock's key: %v", command, err)
		}
	}
	if is := srv.Do("GET", "a"); is != was {
		t.Errorf("the lock's key was %q and is %q", was, is)
	}
	if err := guard.Check(t.Context(), "a", lock.Token()); err != nil {
		t.Errorf("a claim of the resource that has the lock's name: %v", err)
	}
	if _, err := guard.Do(t.Context(), "b", lock.Token(), "SET", "x"); err != nil {
		t.Errorf("a write to another key: %v", err)
	}
	srv.Do("ACL", "SETUSER", "u", "on", ">p", "~lockstile:f:*", "%R~lockstile:t:*", "~a", "+eval", "+evalsha", "+get", "+set", "+exists") // as Requirements say
	rights := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"})
	t.Cleanup(func() { _ = rights.Close() })
	if guard, err = redisfence.NewGuard(rights); err != nil {
		t.Fatal(err)
	}
	if _, err := guard.Do(t.Context(), "a", lock.Token(), "SET", "x"); err == nil || !strings.Contains(err.Error(), "it is the name of a lock on this server") {
		t.Errorf("with the rights that it needs: %v", err)
	}
	mustUnlock(t, lock)
}

// All connections of the client's pool wait for something else.
func TestAPoolWithoutAFreeConnectionIsNamed(t *testing.T) {
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), PoolSize: 2, ContextTimeoutEnabled: true})
	l := newLockerOn(t, rdb, singlenode.Options{})
	lock := mustLock(t, l, "a", locker.WithTTL(time.Second))
	for range 2 {
		go func() { _ = rdb.BLPop(t.Context(), 20*time.Second, "nothing").Err() }()
	}
	select {
	case <-lock.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("the lock is not lost: nothing is tested")
	}
	if _, err := l.TryLock(t.Context(), "b"); !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("nothing was sent: %v", err)
	}
	if err := lock.Err(); !strings.Contains(err.Error(), "all 2 connections of the client's pool are in use") || !strings.Contains(err.Error(), "PoolSize") {
		t.Errorf("the lock is lost: %v", err)
	}
}

// The client of a Cluster has a pool for each master.
func TestAPoolOfAClusterWithoutAFreeConnectionIsNamed(t *testing.T) {
	servers := testserver.RedisCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Addr()}, PoolSize: 2, ContextTimeoutEnabled: true})
	lock := mustLock(t, newLockerOn(t, rdb, singlenode.Options{}), "a", locker.WithTTL(time.Second))
	for range 2 {
		go func() { _ = rdb.BLPop(t.Context(), 20*time.Second, "{a}nothing").Err() }()
	}
	select {
	case <-lock.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("the lock is not lost: nothing is tested")
	}
	if err := lock.Err(); !strings.Contains(err.Error(), "all 2 connections of the client's pool are in use") {
		t.Errorf("the lock is lost: %v", err)
	}
}
