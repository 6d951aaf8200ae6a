package zookeeper_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
)

const queue = zookeeper.DefaultBase + "/n"

// almostUsedUp returns a server whose queue of the lock "n" has so many numbers
// left, and a client that may remove the node which has kept that queue.
func almostUsedUp(t *testing.T, left int32) (*testserver.ZooKeeperServer, *zk.Conn) {
	t.Helper()
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	keep(t, c, c.conn, "n")
	c.conn.Close() // it would look for the server less and less often
	s.SetSequence(queue, math.MaxInt32-left)
	return s, newClient(t, sessionTimeout, s.Addr()).conn
}

// The server counts the children that a node has ever had in an int32, and gives
// every child beyond 2147483647 that number again. (Requests that come in close
// succession get numbers below zero instead.)
func TestExclusionHoldsWhenTheNumbersOfAQueueAreUsedUp(t *testing.T) {
	t.Parallel()
	s, conn := almostUsedUp(t, 1)
	last := newClient(t, sessionTimeout, s.Addr())
	held := lock(t, last, "n")
	if err := conn.Delete(queue+"/keep", -1); err != nil {
		t.Fatal(err)
	}
	const clients = 5
	g := &grants{t: t, last: held, n: make(map[int]int)}
	var all sync.WaitGroup
	for i := range clients {
		c := newClient(t, sessionTimeout, s.Addr())
		if _, err := c.TryLock(soon(t), "n"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock beside a holder: %v", err)
		}
		all.Go(func() {
			for range 3 {
				lk, err := c.Lock(soon(t), "n")
				if err != nil {
					t.Error(err)
					return
				}
				g.granted(i, lk)
				<-time.After(10 * time.Millisecond) // in which others would be granted it
				unlock(t, lk)
			}
		})
	}
	<-time.After(time.Second) // for what must not happen
	unlock(t, held)
	all.Wait()
}

// A reader that gets no number of its own waits until the queue is empty, as everybody does.
func TestReadersAreExcludedWhenTheNumbersOfAQueueAreUsedUp(t *testing.T) {
	t.Parallel()
	s, conn := almostUsedUp(t, 1)
	a, b, c := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	first := lock(t, a, "n", locker.WithShared())
	if err := conn.Delete(queue+"/keep", -1); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryLock(soon(t), "n", locker.WithShared()); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock by a reader that gets no number: %v", err)
	}
	done := make(chan *locker.Lock)
	go func() {
		second, err := b.Lock(soon(t), "n", locker.WithShared())
		if err != nil {
			t.Error(err)
		}
		done <- second
	}()
	select {
	case <-done:
		t.Error("served from a queue that has no numbers left")
	case <-time.After(time.Second): // for what must not happen
	}
	unlock(t, first)
	second := <-done
	if t.Failed() {
		return
	}
	if second.SharedToken() <= first.SharedToken() {
		t.Errorf("number %d after %d", second.SharedToken(), first.SharedToken())
	}
	if _, err := c.TryLock(soon(t), "n"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock beside a reader: %v", err)
	}
	unlock(t, second)
}

// What keeps a queue from being removed is not always somebody who holds the lock.
func TestQueueThatCannotStartAgainIsNotSaidToBeTaken(t *testing.T) {
	t.Parallel()
	s, conn := almostUsedUp(t, 0)
	c := newClient(t, sessionTimeout, s.Addr())
	_, err := c.TryLock(soon(t), "n")
	if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock: %v", err)
	}
	_, err = c.Lock(soon(t), "n")
	if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) {
		t.Errorf("Lock: %v", err)
	}
	if err := conn.Delete(queue+"/keep", -1); err != nil {
		t.Fatalf("the attempts have left something: %v", err)
	}
	lk, err := c.TryLock(soon(t), "n")
	if err != nil {
		t.Fatalf("TryLock, though the queue may be removed: %v", err)
	}
	unlock(t, lk)
}
