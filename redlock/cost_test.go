package redlock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
)

// The clients have two connections each, for buffers weigh more than locks.
func TestHeldLocksAreSmallAndHaveNoGoroutines(t *testing.T) {
	const locks, most = 3_000, 2048
	servers := startNodes(t, 5)
	clients := make([]redis.UniversalClient, len(servers))
	for i, s := range servers {
		clients[i] = redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 2})
	}
	l := newLockerOn(t, clients, patient)
	mustUnlock(t, mustLock(t, l, "a"))
	memory, goroutines := heap(), runtime.NumGoroutine()
	held := make([]*locker.Lock, locks)
	for i := range held {
		var err error // mustLock would keep a context of each
		if held[i], err = l.Lock(context.Background(), fmt.Sprint("invoices/", i)); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - memory) / locks
	for end := time.Now().Add(time.Minute); each > most && time.Now().Before(end); each = (heap() - memory) / locks {
		time.Sleep(100 * time.Millisecond) // renewals under way take memory, too
	}
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

func heap() int64 {
	runtime.GC()
	runtime.GC() // what a pool held in the first goes in the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
