package zookeeper_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/internal/testserver"
)

// The floor: the two requests that any lock of the recipe needs, through the
// same client, without anything that the recipe does besides.
func BenchmarkTwoBareRequests(b *testing.B) {
	c := newClient(b, sessionTimeout, testserver.ZooKeeper(b, 1)[0].Addr())
	acl := zk.WorldACL(zk.PermAll)
	b.ReportAllocs()
	for b.Loop() {
		path, err := c.conn.Create("/lock-", nil, zk.FlagEphemeralSequential, acl)
		if err == nil {
			err = c.conn.Delete(path, -1)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLockUnlock(b *testing.B) {
	c := newClient(b, sessionTimeout, testserver.ZooKeeper(b, 1)[0].Addr())
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lk, err := c.Lock(ctx, "n")
		if err == nil {
			err = lk.Unlock(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkZKLock is the zk client's own lock.
func BenchmarkZKLock(b *testing.B) {
	c := newClient(b, sessionTimeout, testserver.ZooKeeper(b, 1)[0].Addr())
	lk := zk.NewLock(c.conn, "/theirs", zk.WorldACL(zk.PermAll))
	b.ReportAllocs()
	for b.Loop() {
		err := lk.Lock()
		if err == nil {
			err = lk.Unlock()
		}
		if err != nil {
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
	addr := testserver.ZooKeeper(b, 1)[0].Addr()
	clients := make([]client, lockers)
	for i := range clients {
		clients[i] = newClient(b, sessionTimeout, addr)
	}
	work := make(chan struct{})
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			for range work {
				lk, err := clients[i%lockers].Lock(context.Background(), "n")
				if err == nil {
					err = lk.Unlock(context.Background())
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	all.Wait()
}
