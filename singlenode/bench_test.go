package singlenode_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// The floor: the two cheapest commands that could lock and unlock, through the
// same client.
func BenchmarkTwoBareCommands(b *testing.B) {
	srv := testserver.Redis(b)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := rdb.SetArgs(ctx, "k", "v", redis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err(); err != nil {
			b.Fatal(err)
		}
		if err := rdb.Del(ctx, "k").Err(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLockUnlock(b *testing.B) {
	srv := testserver.Redis(b)
	l := newLocker(b, srv.Addr(), singlenode.Options{})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lock, err := l.Lock(ctx, "k")
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkContended has 64 waiters on one name, in one Locker and spread over
// eight. One operation is one acquisition.
func BenchmarkContended(b *testing.B) {
	for _, lockers := range []int{1, 8} {
		b.Run(fmt.Sprintf("64waiters/%dlockers", lockers), func(b *testing.B) { contend(b, lockers, 64) })
	}
}

func contend(b *testing.B, lockers, waiters int) {
	srv := testserver.Redis(b)
	ls := make([]*singlenode.Locker, lockers)
	for i := range ls {
		ls[i] = newLocker(b, srv.Addr(), singlenode.Options{})
	}
	ctx := context.Background()
	var (
		left     = b.N // guarded by the lock, as are the two below
		released time.Time
		handOver []time.Duration
		wg       sync.WaitGroup
	)
	before := commands(b, srv)
	b.ResetTimer()
	for i := range waiters {
		wg.Go(func() {
			for {
				lock, err := ls[i%lockers].Lock(ctx, "k")
				if err != nil {
					b.Error(err)
					return
				}
				if !released.IsZero() {
					handOver = append(handOver, time.Since(released))
				}
				done := left == 0
				if !done {
					left--
				}
				released = time.Now()
				if err := lock.Unlock(ctx); err != nil {
					b.Error(err)
				}
				if done {
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(handOver)
	b.ReportMetric(float64(commands(b, srv)-before)/float64(b.N), "requests/op")
	b.ReportMetric(float64(handOver[len(handOver)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(handOver[len(handOver)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
}

// commands counts requests, not what scripts call inside the server.
func commands(b *testing.B, srv *testserver.RedisServer) int {
	return calls(b, srv, "evalsha") + calls(b, srv, "eval")
}
