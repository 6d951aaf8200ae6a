package zookeeper_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/zookeeper"
)

func TestAThousandWaitersOfAProcessCostOneRequestEach(t *testing.T) {
	s := server(t)
	c := newClient(t, time.Minute, s.Addr())
	held := lock(t, c, "n", locker.WithTTL(time.Minute))
	const n = 1000
	before := s.Stat("zk_packets_received")
	var all sync.WaitGroup
	var mu sync.Mutex
	last := held.Token()
	for range n {
		all.Go(func() {
			lk, err := c.Lock(soon(t), "n", locker.WithTTL(time.Minute))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if lk.Token() <= last {
				t.Errorf("token %d after %d", lk.Token(), last)
			}
			last = lk.Token()
			mu.Unlock()
			if err := lk.Unlock(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
	unlock(t, held)
	all.Wait()
	// Pings and looks of a minute's session come to a few.
	if used := s.Stat("zk_packets_received") - before; used > n+n/10 {
		t.Errorf("%d locks took %d requests", n, used)
	}
}

// A turn of another process is a place, two looks at the queue, a watch and a
// deletion; in a process with a line, the deletion makes the next place.
func TestTurnsOfManyProcessesTakeFiveRequestsOrFourWithALine(t *testing.T) {
	t.Parallel()
	for _, goroutines := range []int{1, 8} {
		t.Run(fmt.Sprint(goroutines, " goroutines each"), func(t *testing.T) { takeTurns(t, 8, goroutines) })
	}
}

func takeTurns(t *testing.T, processes, goroutines int) {
	s := server(t)
	minute := locker.WithTTL(time.Minute)
	held := lock(t, newClient(t, time.Minute, s.Addr()), "n", minute) // no pings on the way
	clients := make([]client, processes)
	for i := range clients {
		clients[i] = newClient(t, time.Minute, s.Addr())
		unlock(t, lock(t, clients[i], fmt.Sprint("other ", i), minute))
	}
	before := s.Stat("zk_packets_received")
	var all sync.WaitGroup
	for _, c := range clients {
		for range goroutines {
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
	}
	looks := int64(1) // at the server, a packet each
	for ctx := soon(t); ; looks++ {
		waiting := s.Stat("zk_watch_count") >= int64(processes)
		for _, c := range clients {
			waiting = waiting && c.InLine("n") == goroutines
		}
		if waiting {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("they do not wait")
		}
	}
	unlock(t, held)
	all.Wait()
	used := s.Stat("zk_packets_received") - before - looks - 1
	want := int64(processes*(4*goroutines+1) + 1)
	if used > want+int64(processes/2) { // who finds its watch too late looks again
		t.Errorf("%d turns took %d requests, want %d", processes*goroutines, used, want)
	}
}

func TestManyHeldLocksShareTheirRenewals(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := newClient(t, time.Minute, s.Addr())
	const n = 1200 // more than one transaction renews
	locks := make([]*locker.Lock, n)
	var all sync.WaitGroup
	for i := range locks {
		all.Go(func() {
			var err error
			if locks[i], err = c.Lock(soon(t), fmt.Sprint("name ", i), locker.WithTTL(time.Minute)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	before := s.Stat("zk_packets_received")
	ends := locks[n-1].Deadline()
	ctx := soon(t)
	for !locks[n-1].Deadline().After(ends.Add(time.Second)) { // until it was renewed
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("not renewed")
		}
	}
	if used := s.Stat("zk_packets_received") - before; used > 50 {
		t.Errorf("renewing %d locks took %d requests", n, used)
	}
	for i, lk := range locks {
		if err := lk.Err(); err != nil {
			t.Fatalf("lock %d: %v", i, err)
		}
	}
}

func TestNamesLeaveNoTrace(t *testing.T) {
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	unlock(t, lock(t, c, "n"))
	ctx := soon(t)
	for {
		exists, _, err := c.conn.Exists("/lockstile/n")
		switch {
		case err != nil:
			t.Fatal(err)
		case !exists:
			unlock(t, lock(t, c, "n")) // and it can be locked again
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the node of an unlocked name is still there")
		}
	}
}

// Locks of the zk client on the same path exclude ours, and ours exclude them.
func TestLocksOfTheZKClientExcludeOursAndOursThem(t *testing.T) {
	s := server(t)
	ours, theirs := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	foreign := zk.NewLock(theirs.conn, zookeeper.DefaultBase+"/n", zk.WorldACL(zk.PermAll))
	for range 3 {
		held := lock(t, ours, "n")
		done := make(chan error, 1)
		go func() { done <- foreign.Lock() }()
		waiters(t, ours, "n", 1)
		select {
		case err := <-done:
			t.Fatalf("zk.Lock while we hold: %v", err)
		default:
		}
		unlock(t, held)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, err := ours.TryLock(soon(t), "n"); !errors.Is(err, locker.ErrTaken) {
			t.Fatalf("TryLock while zk.Lock holds: %v", err)
		}
		go func() {
			lk, err := ours.Lock(soon(t), "n")
			if err == nil {
				err = lk.Unlock(soon(t))
			}
			done <- err
		}()
		waiters(t, ours, "n", 1)
		if err := foreign.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}
