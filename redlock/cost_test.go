package redlock_test

import (
	"context"
	"fmt"
	"runtime"
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
	for nodes, most := range map[int]int64{3: 1536, 5: 1640} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) { checkCost(t, nodes, most) })
	}
	t.Run("shared", func(t *testing.T) { checkCost(t, 5, 1640, locker.WithShared()) })
}

func checkCost(t *testing.T, nodes int, most int64, kind ...locker.Option) {
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
	kind = append(kind, locker.WithTTL(opts.MaxTTL))
	for i := range held {
		var err error // mustLock would keep a context of each
		if held[i], err = l.Lock(context.Background(), fmt.Sprint("invoices/", i), kind...); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the stragglers are done", func() bool { return redlock.UnderWay(l) == 0 })
	each := (testserver.Heap() - memory) / locks
	if each > most {
		t.Errorf("%d bytes for each held lock, want %d at most", each, most)
	} else {
		t.Logf("%d bytes for each held lock", each)
	}
	eventually(t, "the goroutines of the last renewals to end", func() bool {
		return runtime.NumGoroutine()-goroutines <= locks/100
	})
	runtime.KeepAlive(held)
}
