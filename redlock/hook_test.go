package redlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redishook"
	"github.com/lockstile/locker/internal/testserver"
)

// A hook of the clients puts a tenant's prefix before every key. Two processes exclude
// each other through it, and wake each other, though words go past all hooks.
func TestHookThatRewritesKeysIsAskedOnEveryNode(t *testing.T) {
	servers := startNodes(t, 3)
	hook := &redishook.Tenant{Prefix: "tenant:"}
	process := func() locker.Locker {
		clients := make([]redis.UniversalClient, len(servers))
		for i, s := range servers {
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
			rdb.AddHook(hook)
			clients[i] = rdb
		}
		return newLockerOn(t, clients, patient)
	}
	one, two := process(), process()
	held := mustLock(t, one, "a", locker.WithTTL(time.Minute))
	if _, err := two.TryLock(patience(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("TryLock of a lock that is held: %v", err)
	}
	granted := make(chan error, 1)
	go func() {
		lock, err := two.Lock(patience(t), "a")
		if err == nil {
			err = lock.Unlock(patience(t))
		}
		granted <- err
	}()
	eventually(t, "it waits", func() bool {
		info, err := one.(locker.Inspector).Inspect(patience(t), "a")
		return err == nil && info.Waiters == 1
	})
	mustUnlock(t, held)
	select {
	case err := <-granted:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(25 * time.Second): // the lease has a minute
		t.Error("the waiter was not woken")
	}
	prefixed(t, servers)
	if errs := hook.Errors(); errs != nil {
		t.Errorf("the hook was given %d keys that it could not rewrite: %v", len(errs), errs[0])
	}
}

func prefixed(t *testing.T, servers []*testserver.RedisServer) {
	t.Helper()
	for i, s := range servers {
		for key := range strings.FieldsSeq(s.Do("KEYS", "*")) {
			if rest, ours := strings.CutPrefix(key, "tenant:"); !ours || strings.HasPrefix(rest, "tenant:") {
				t.Errorf("node %d has the key %q", i, key)
			}
		}
	}
}

// Somebody deletes the key on all nodes. The holder finds that when it unlocks, or renews,
// and the waiter is told, which would else sleep until the end of the lease.
func TestWaiterIsServedWhenTheHolderFindsItsLockGone(t *testing.T) {
	for how, find := range map[string]func(*locker.Lock) error{
		"Unlock": func(lock *locker.Lock) error { return lock.Unlock(patience(t)) },
		"Renew":  func(lock *locker.Lock) error { return lock.Renew(patience(t)) },
	} {
		servers := startNodes(t, 3)
		one, two := newLocker(t, servers, patient), newLocker(t, servers, patient)
		held := mustLockOn(t, one, servers, locker.WithTTL(time.Minute))
		granted := make(chan error, 1)
		go func() {
			_, err := two.Lock(patience(t), "a")
			granted <- err
		}()
		eventually(t, "it waits on all nodes", func() bool {
			for _, s := range servers {
				if s.Do("ZCARD", "lockstile:q:{a}") != "1" {
					return false
				}
			}
			return true
		})
		for _, s := range servers {
			s.Do("DEL", "a")
		}
		if err := find(held); !errors.Is(err, locker.ErrLost) {
			t.Errorf("%s of a lock whose key is gone: %v", how, err)
		}
		select {
		case err := <-granted:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(25 * time.Second): // the lease has a minute
			t.Errorf("after %s the waiter was not served", how)
		}
	}
}
