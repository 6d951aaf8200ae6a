package singlenode_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// panics is a hook that panics when the answer to a request has come, if the context says
// so.
type panics struct{}

// provoking is the key of callers whose requests make the hook panic.
type provoking struct{}

func (panics) DialHook(next redis.DialHook) redis.DialHook { return next }

func (panics) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (panics) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if ctx.Value(provoking{}) != nil {
			panic("the hook")
		}
		return err
	}
}

// Some requests are sent in their caller's goroutine, who may recover from a hook that panics, and others in one of
// their own, where nobody could. Whatever the hook does, no lock is left behind.
func TestHookThatPanicsLeavesNoLockBehind(t *testing.T) {
	t.Parallel()
	for where, connect := range map[string]func(t *testing.T) func() redis.UniversalClient{
		"one server": func(t *testing.T) func() redis.UniversalClient {
			addr := testserver.Redis(t).Addr()
			return func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: addr}) }
		},
		"a Cluster": func(t *testing.T) func() redis.UniversalClient {
			addrs := []string{testserver.RedisCluster(t, 2)[0].Addr()}
			return func() redis.UniversalClient {
				return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
			}
		},
	} {
		t.Run(where, func(t *testing.T) {
			client := connect(t)
			rdb := client()
			rdb.AddHook(panics{})
			leavesNoLockBehind(t, newLockerOn(t, rdb, singlenode.Options{}), newLockerOn(t, client(), singlenode.Options{}))
		})
	}
}

func leavesNoLockBehind(t *testing.T, a, b *singlenode.Locker) {
	t.Helper()
	mustUnlock(t, mustLock(t, b, "a")) // the server knows the scripts
	provoked, cancel := context.WithCancel(context.WithValue(context.Background(), provoking{}, true))
	defer cancel()
	for what, f := range map[string]func() error{
		"TryLock": func() error { _, err := a.TryLock(provoked, "a"); return err },
		"TryLock without an end": func() error {
			_, err := a.TryLock(context.WithoutCancel(provoked), "a")
			return err
		},
		"Unlock": func() error { return mustLock(t, a, "a").Unlock(provoked) },
		"Renew": func() error {
			lock := mustLock(t, a, "a")
			defer mustUnlock(t, lock)
			return lock.Renew(provoked)
		},
		"Renew without an end": func() error {
			lock := mustLock(t, a, "a")
			defer mustUnlock(t, lock)
			return lock.Renew(context.WithoutCancel(provoked))
		},
	} {
		if err := recovered(f); err == nil || !strings.Contains(err.Error(), "the hook") {
			t.Errorf("%s: the hook has panicked, and it returned %v", what, err)
		}
		soon, cancel := context.WithTimeout(context.Background(), locker.DefaultTTL/2)
		lock, err := b.Lock(soon, "a", locker.WithTTL(time.Minute))
		if cancel(); err != nil {
			t.Fatalf("after %s in which a hook panicked: %v", what, err)
		}
		mustUnlock(t, lock)
	}
}

// recovered calls f and recovers, as net/http does for a handler.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("recovered: %v", p)
		}
	}()
	return f()
}
