package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
)

// A renewal may come in between, on a machine that stalls: then it is tried again.
func TestLockAndUnlockTakeOneRoundTripEach(t *testing.T) {
	s := server(t)
	want, took := [2]int64{1, 1}, [2]int64{}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		begun := time.Now()
		c := newClient(t, time.Minute, s.Addr())
		keepEmpty(t, c.conn, "n")
		unlock(t, lock(t, c, "n", locker.WithTTL(time.Minute)))
		before := s.Stat("zk_packets_received")
		lk := lock(t, c, "n", locker.WithTTL(time.Minute))
		locked := s.Stat("zk_packets_received")
		unlock(t, lk)
		unlocked := s.Stat("zk_packets_received")
		took = [2]int64{locked - before - 1, unlocked - locked - 1} // the look itself is one
		if took == want || time.Since(begun) < 5*time.Second {      // no pings and renewals yet
			break
		}
	}
	if took != want {
		t.Errorf("Lock and Unlock took %d requests, want %d", took, want)
	}
}

// The answer to the request for a place says that it is not alone, and not who else is there.
func TestReaderTakesOneMoreRequestBesideOthers(t *testing.T) {
	s := server(t)
	want, took := [4]int64{1, 2, 1, 1}, [4]int64{}
	shared, minute := locker.WithShared(), locker.WithTTL(time.Minute)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		begun := time.Now()
		a, b := newClient(t, time.Minute, s.Addr()), newClient(t, time.Minute, s.Addr())
		keepEmpty(t, a.conn, "n")
		for _, c := range []client{a, b} {
			unlock(t, lock(t, c, "n", shared, minute))
		}
		var first, second *locker.Lock
		for i, do := range []func(){
			func() { first = lock(t, a, "n", shared, minute) },
			func() { second = lock(t, b, "n", shared, minute) },
			func() { unlock(t, first) },
			func() { unlock(t, second) },
		} {
			before := s.Stat("zk_packets_received")
			do()
			took[i] = s.Stat("zk_packets_received") - before - 1 // the look itself is one
		}
		if took == want || time.Since(begun) < 5*time.Second { // no pings and renewals yet
			break
		}
	}
	if took != want {
		t.Errorf("two readers that lock and unlock took %d requests, want %d", took, want)
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

// lockMany locks n names, a few at a time: an answer must come within a session timeout.
func lockMany(t *testing.T, l locker.Locker, n int, opts ...locker.Option) []*locker.Lock {
	t.Helper()
	locks, work := make([]*locker.Lock, n), make(chan int)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := range work {
				var err error
				if locks[i], err = l.Lock(context.Background(), fmt.Sprint("name ", i), opts...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range locks {
		work <- i
	}
	close(work)
	all.Wait()
	return locks
}

func TestManyHeldLocksShareTheirRenewals(t *testing.T) {
	t.Parallel()
	s := server(t)
	const n, timeout = 1200, 15 * time.Second // more than one transaction renews
	c := newClient(t, timeout, s.Addr())
	locks := lockMany(t, c, n, locker.WithTTL(timeout))
	if t.Failed() {
		return
	}
	gone := []*locker.Lock{locks[n/2], locks[n-1]}
	for _, lk := range gone {
		if err := c.conn.Delete(only(t, c.conn, lk.Name()), -1); err != nil {
			t.Fatal(err)
		}
	}
	begun, before := time.Now(), s.Stat("zk_packets_received")
	for _, lk := range gone {
		select {
		case <-lk.Lost(): // all were looked at
		case <-soon(t).Done():
			t.Fatal("a lock whose node was deleted is not lost")
		}
		if lost := (*locker.LostError)(nil); !errors.As(lk.Err(), &lost) || lost.Reason != locker.ReasonTakenOver {
			t.Errorf("lost with %v", lk.Err())
		}
	}
	used, seconds := s.Stat("zk_packets_received")-before, int64(1+time.Since(begun)/time.Second)
	if used > 50*seconds {
		t.Errorf("renewing %d locks took %d requests in %d s", n, used, seconds)
	}
	for i, lk := range locks {
		if err := lk.Err(); err != nil && !slices.Contains(gone, lk) {
			t.Fatalf("lock %d: %v", i, err)
		}
	}
}

// A renewal waits behind what was sent over its connection before, and is of no use after
// the session. So of the requests of a thousand names only a few are sent ahead.
func TestRenewalDoesNotWaitBehindTheRequestsOfManyNames(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	session := zookeeper.NewSession(func(network, addr string, within time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, within)
		return testserver.SlowConn{Conn: conn, Each: 5 * time.Millisecond, Writes: &requests}, err
	})
	conn, _, err := zk.Connect([]string{server(t).Addr()}, 30*time.Second, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	c := client{newLocker(t, conn, zookeeper.Options{Session: session}), conn}
	held := lock(t, c, "held")
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() { _, _ = c.Lock(ctx, fmt.Sprint("n", i)) })
	}
	begun := requests.Load()
	until(t, "the many names to keep the connection busy", func() bool { return requests.Load() > begun+50 })
	before := requests.Load()
	if err := held.Renew(soon(t)); err != nil {
		t.Error(err)
	}
	if ahead := requests.Load() - before; ahead > 250 {
		t.Errorf("%d requests went before a renewal", ahead)
	}
	cancel()
	all.Wait()
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

// The server removes a container when nothing is left in it. A base that came again with
// the next lock would have the ACL of that lock's Locker.
func TestBaseStays(t *testing.T) {
	srv := server(t)
	c, admin := newClient(t, sessionTimeout, srv.Addr()), newClient(t, sessionTimeout, srv.Addr())
	unlock(t, lock(t, c, "n"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	children := func(path string) int {
		all, _, err := admin.conn.Children(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return len(all)
	}
	until(t, "everything below the base to go", func() bool { return children("/lockstile") == 0 })
	for _, path := range []string{"/one", "/two"} { // containers that go when the server looks
		_, err := admin.conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
		if err == nil {
			_, err = admin.conn.Create(path+"/child", nil, 0, zk.WorldACL(zk.PermAll))
		}
		if err == nil {
			err = admin.conn.Delete(path+"/child", -1)
		}
		if err != nil {
			t.Fatal(err)
		}
		until(t, "a container to go", func() bool {
			there, _, err := admin.conn.Exists(path)
			return err == nil && !there
		})
	}
	children("/lockstile")
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
	waiters(t, a, "n", 0)
	until(t, "one watch, which all of them have shared", func() bool { return b.Watches() == 1 })
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine()-before <= 20 })
	unlock(t, held)
	until(t, "the watch to be forgotten", func() bool { return b.Watches() == 0 })
}
