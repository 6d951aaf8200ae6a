package redlock_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// A client has one connection, for buffers weigh more than locks: the one that the
// lock before the first count has opened.
func TestHeldLocksAreSmallAndHaveNoGoroutines(t *testing.T) {
	for nodes, most := range map[int]int64{3: 1650, 5: 1750} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) { checkCost(t, nodes, most) })
		if testing.Short() {
			return // one of them: the others are left to make proof
		}
	}
	t.Run("shared", func(t *testing.T) { checkCost(t, 5, 1700, locker.WithShared()) })
}

// How much a map has set aside depends on the seed of its hash, so one measurement of three is enough.
func checkCost(t *testing.T, nodes int, most int64, kind ...locker.Option) {
	var each []int64
	for len(each) < 3 {
		each = append(each, costOfALock(t, nodes, kind))
		if slices.Min(each) <= most {
			break
		}
	}
	t.Logf("%d bytes for each held lock, want %d at most", each, most)
	if slices.Min(each) > most {
		t.Error("that is too much")
	}
}

func costOfALock(t *testing.T, nodes int, kind []locker.Option) int64 {
	t.Helper()
	const locks = 3_000
	servers := startNodes(t, nodes)
	clients := make([]redis.UniversalClient, len(servers))
	for i, s := range servers {
		clients[i] = redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1})
	}
	opts := patient
	opts.MaxTTL = time.Hour // nobody renews meanwhile: a batch under way takes memory, too
	l := newLockerOn(t, clients, opts)
	mustUnlock(t, mustLock(t, l, "a"))
	eventually(t, "the stragglers are done", func() bool { return redlock.UnderWay(l) == 0 })
	memory, goroutines := testserver.Heap(), runtime.NumGoroutine()
	held := make([]*locker.Lock, locks)
	kind = append(slices.Clone(kind), locker.WithTTL(opts.MaxTTL))
	for i := range held {
		var err error // mustLock would keep a context of each
		if held[i], err = l.Lock(context.Background(), fmt.Sprint("invoices/", i), kind...); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the stragglers are done", func() bool { return redlock.UnderWay(l) == 0 })
	each := (testserver.Heap() - memory) / locks
	eventually(t, "the goroutines of the last renewals to end", func() bool {
		return runtime.NumGoroutine()-goroutines <= locks/100
	})
	runtime.KeepAlive(held)
	return each
}
