package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
)

// A renewal may come in between, on a machine that stalls: then it is tried again.
func TestLockAndUnlockTakeOneRoundTripEach(t *testing.T) {
	s := server(t)
	var took [2]int64
	for end := time.Now().Add(patience); time.Now().Before(end); {
		c := newClient(t, time.Minute, s.Addr())
		begun := time.Now()
		keepEmpty(t, c.conn, "n")
		unlock(t, lock(t, c, "n", locker.WithTTL(time.Minute)))
		before := s.Stat("zk_packets_received")
		lk := lock(t, c, "n", locker.WithTTL(time.Minute))
		locked := s.Stat("zk_packets_received")
		unlock(t, lk)
		unlocked := s.Stat("zk_packets_received")
		took = [2]int64{locked - before - 1, unlocked - locked - 1} // the look itself is one
		if time.Since(begun) < 5*time.Second {                      // no pings and renewals yet
			break
		}
	}
	if took != [2]int64{1, 1} {
		t.Errorf("Lock and Unlock took %d requests", took)
	}
}

// Goroutines that share a lease need no request: the place and its deletion are the
// lease's.
func TestAThousandWaitersOfAProcessCostTwoRequestsALease(t *testing.T) {
	s := server(t)
	c := newClient(t, time.Minute, s.Addr())
	minute := locker.WithTTL(time.Minute)
	keepEmpty(t, c.conn, "n")
	unlock(t, lock(t, c, "n", minute)) // the session is there
	const n = 1000
	begun, before := time.Now(), s.Stat("zk_packets_received")
	held := lock(t, c, "n", minute)
	var all sync.WaitGroup
	var mu sync.Mutex
	last := held.Token()
	leases := map[any]bool{driver.LeaseOf(held): true}
	for range n {
		all.Go(func() {
			lk, err := c.Lock(soon(t), "n", minute)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if lk.Token() <= last {
				t.Errorf("token %d after %d", lk.Token(), last)
			}
			last = lk.Token()
			leases[driver.LeaseOf(lk)] = true
			mu.Unlock()
			if err := lk.Unlock(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
	unlock(t, held)
	all.Wait()
	used := s.Stat("zk_packets_received") - before
	if most := int64(2*len(leases)+2) + beside(begun); used > most || len(leases) > n/2 {
		t.Errorf("%d locks on %d leases took %d requests, want %d at most", n, len(leases), used, most)
	}
}

// beside is how many pings and renewals of a session of a minute there may have been.
func beside(begun time.Time) int64 { return 2 * int64(1+time.Since(begun)/(8*time.Second)) }

// A turn of another process is a place, two looks at the queue, a watch and a
// deletion.
func TestTurnsOfManyProcessesTakeFiveRequests(t *testing.T) {
	t.Parallel()
	const waiting = 8
	s := server(t)
	minute := locker.WithTTL(time.Minute)
	held := lock(t, newClient(t, time.Minute, s.Addr()), "n", minute)
	clients := make([]client, waiting)
	for i := range clients {
		clients[i] = newClient(t, time.Minute, s.Addr())
		unlock(t, lock(t, clients[i], fmt.Sprint("other ", i), minute))
	}
	begun, before := time.Now(), s.Stat("zk_packets_received")
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			lk, err := c.Lock(soon(t), "n", minute)
			if err == nil {
				err = lk.Unlock(soon(t))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	looks := int64(0) // at the server, a packet each
	until(t, "the waiters", func() bool { looks++; return s.Stat("zk_watch_count") >= waiting })
	unlock(t, held)
	all.Wait()
	used := s.Stat("zk_packets_received") - before - looks - 1
	want := int64(waiting*5 + 1)
	if most := want + waiting*beside(begun); used > most {
		t.Errorf("%d turns took %d requests, want %d, and %d at most with pings and renewals", waiting, used, want, most)
	}
}

func TestManyHeldLocksShareTheirRenewals(t *testing.T) {
	t.Parallel()
	s := server(t)
	const n, timeout = 1200, 6 * time.Second // more than one transaction renews
	c := newClient(t, timeout, s.Addr())
	locks := make([]*locker.Lock, n)
	var all sync.WaitGroup
	for i := range locks {
		all.Go(func() {
			var err error
			if locks[i], err = c.Lock(soon(t), fmt.Sprint("name ", i), locker.WithTTL(timeout)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	gone := locks[n/2]
	if err := c.conn.Delete(only(t, c.conn, gone.Name()), -1); err != nil {
		t.Fatal(err)
	}
	begun, before := time.Now(), s.Stat("zk_packets_received")
	select {
	case <-gone.Lost(): // all were looked at
	case <-soon(t).Done():
		t.Fatal("a lock whose node was deleted is not lost")
	}
	used, seconds := s.Stat("zk_packets_received")-before, int64(1+time.Since(begun)/time.Second)
	if used > 50*seconds {
		t.Errorf("renewing %d locks took %d requests in %d s", n, used, seconds)
	}
	for i, lk := range locks {
		if err := lk.Err(); err != nil && lk != gone {
			t.Fatalf("lock %d: %v", i, err)
		}
	}
}

func TestNamesLeaveNoTrace(t *testing.T) {
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	unlock(t, lock(t, c, "n"))
	until(t, "the node of an unlocked name to go", func() bool {
		exists, _, err := c.conn.Exists("/lockstile/n")
		if err != nil {
			t.Fatal(err)
		}
		return !exists
	})
	unlock(t, lock(t, c, "n")) // and it can be locked again
}

func TestHeldLocksAreSmallAndHaveNoGoroutines(t *testing.T) {
	const locks, most = 10_000, 1228
	s := server(t)
	c := newClient(t, time.Minute, s.Addr())
	minute := locker.WithTTL(time.Minute)
	unlock(t, lock(t, c, "a", minute))
	memory, goroutines := testserver.Heap(), runtime.NumGoroutine()
	held := make([]*locker.Lock, locks)
	work := make(chan int)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := range work {
				var err error
				if held[i], err = c.Lock(context.Background(), fmt.Sprint("invoices/", i), minute); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range held {
		work <- i
	}
	close(work)
	all.Wait()
	each := func() int64 { return (testserver.Heap() - memory) / locks }
	until(t, "the memory of renewals under way", func() bool { return each() <= most })
	t.Logf("%d bytes for each held lock", each())
	until(t, "the goroutines of renewals under way", func() bool { return runtime.NumGoroutine()-goroutines <= locks/100 })
	runtime.KeepAlive(held)
}

// A thousand waiters that come and go leave nodes, watches and goroutines to
// nobody.
func TestAThousandWaitersThatWereCancelledLeaveNothing(t *testing.T) {
	s := server(t)
	a, b := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, a, "n")
	before := runtime.NumGoroutine()
	for range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := b.Lock(ctx, "n"); !errors.Is(err, context.Canceled) { // the first may not have been told yet
					t.Errorf("a cancelled waiter: %v", err)
				}
			})
		}
		waiters(t, a, "n", 1)
		cancel()
		all.Wait()
	}
	cleanedUp(t, b.Locker)
	waiters(t, a, "n", 0)
	if n := b.Watches(); n != 1 { // which all of them have shared
		t.Errorf("%d watches", n)
	}
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine()-before <= 20 })
	unlock(t, held)
}

// Watches whose nodes have gone while nobody waited are forgotten.
//
//	a hundred times: somebody waits for a holder, gives up, and the holder unlocks
func TestWatchesThatHaveFiredAreForgotten(t *testing.T) {
	s := server(t)
	a, b := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	most := 0
	for range 100 {
		held := lock(t, a, "n")
		ctx, cancel := context.WithCancel(context.Background())
		waited := make(chan error, 1)
		go func() { _, err := b.Lock(ctx, "n"); waited <- err }()
		until(t, "a watch", func() bool { return s.Stat("zk_watch_count") > 0 })
		cancel()
		if err := <-waited; !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		unlock(t, held)
		most = max(most, b.Watches())
	}
	if most > 40 {
		t.Errorf("%d watches are remembered", most)
	}
}
