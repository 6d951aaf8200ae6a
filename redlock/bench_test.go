package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
)

// BenchmarkTwoBareCommands is what a lock and an unlock cannot be cheaper than:
// SET and DEL to five nodes in parallel.
func BenchmarkTwoBareCommands(b *testing.B) {
	servers := startNodes(b, 5)
	var clients []*redis.Client
	for _, s := range servers {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: s.Addr()}))
	}
	ctx := context.Background()
	each := func(f func(*redis.Client) error) {
		var all sync.WaitGroup
		for _, c := range clients {
			all.Go(func() {
				if err := f(c); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	b.ReportAllocs()
	for b.Loop() {
		each(func(c *redis.Client) error { return c.SetNX(ctx, "a", "value", 0).Err() })
		each(func(c *redis.Client) error { return c.Del(ctx, "a").Err() })
	}
}

func BenchmarkLockUnlock(b *testing.B) {
	l := newLocker(b, startNodes(b, 5), patient)
	b.ReportAllocs()
	for b.Loop() {
		mustUnlock(b, mustLock(b, l, "a"))
	}
}

// Servers of a test are young: they have to be up for two seconds first.
func BenchmarkLockUnlockWithTheRestartRule(b *testing.B) {
	opts := patient
	opts.DurableNodes, opts.MaxTTL = false, time.Second
	l := newLocker(b, startNodes(b, 5), opts)
	eventually(b, "young servers get their votes", func() bool {
		lock, err := l.TryLock(patience(b), "a", locker.WithTTL(time.Second))
		if err == nil {
			mustUnlock(b, lock)
		}
		return err == nil
	})
	b.ReportAllocs()
	for b.Loop() {
		mustUnlock(b, mustLock(b, l, "a", locker.WithTTL(time.Second)))
	}
}

// BenchmarkContended has waiters take turns.
func BenchmarkContended(b *testing.B) {
	for _, lockers := range []int{1, 8} {
		b.Run(fmt.Sprintf("64 waiters in %d Lockers", lockers), func(b *testing.B) {
			servers := startNodes(b, 5)
			turns := make(chan struct{})
			var all sync.WaitGroup
			for range lockers {
				l := newLocker(b, servers, patient)
				for range 64 / lockers {
					all.Go(func() {
						for range turns {
							mustUnlock(b, mustLock(b, l, "a"))
						}
					})
				}
			}
			for b.Loop() {
				turns <- struct{}{}
			}
			close(turns)
			all.Wait()
		})
	}
}
