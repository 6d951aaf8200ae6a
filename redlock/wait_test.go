package redlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// crowd has many goroutines take turns and checks what a lock promises.
func crowd(t *testing.T, lockers []*redlock.Locker, waiters, each int) {
	t.Helper()
	var holders atomic.Int32
	var last fencing.Token // guarded by the lock under test
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			for range each {
				lock, err := lockers[i%len(lockers)].Lock(patience(t), "a")
				if err != nil {
					t.Error(err)
					return
				}
				if holders.Add(1) != 1 {
					t.Error("two holders at once")
				}
				if lock.Token() <= last {
					t.Errorf("token %d after %d", lock.Token(), last)
				}
				last = lock.Token()
				holders.Add(-1)
				mustUnlock(t, lock)
			}
		})
	}
	all.Wait()
}

// What a turn costs a node does not depend on how many wait: a place in the
// queue, the claim and the release between processes, less within one.
func TestRequestsPerTurnDoNotGrowWithTheWaiters(t *testing.T) {
	for _, waiters := range []int{8, 64} {
		servers := startNodes(t, 3)
		var lockers []*redlock.Locker
		for range 8 {
			lockers = append(lockers, newLocker(t, servers, patient))
		}
		crowd(t, lockers, waiters, 10)
		for i, s := range servers {
			each := float64(calls(s, "evalsha")+calls(s, "eval")) / float64(waiters*10)
			t.Logf("%d waiters: %.1f requests a turn to node %d", waiters, each, i)
			if each > 5 {
				t.Errorf("%d waiters: %.1f requests a turn to node %d", waiters, each, i)
			}
		}
	}
}

// queueUp starts a waiter in each Locker, one after another, and returns when
// every node but those that are down has all of them in its queue.
func queueUp(t *testing.T, lockers []*redlock.Locker, up []*testserver.RedisServer) <-chan int {
	t.Helper()
	served := make(chan int, len(lockers))
	for i, l := range lockers {
		go func() {
			lock, err := l.Lock(patience(t), "a")
			if err != nil {
				t.Error(err)
				served <- -1
				return
			}
			served <- i
			mustUnlock(t, lock)
		}()
		for _, s := range up {
			eventually(t, "waiter is in the queue", func() bool { return s.Do("ZCARD", "lockstile:q:{a}") == string(rune('1'+i)) })
		}
	}
	return served
}

func TestWaitersOfManyLockersAreServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]int{"all nodes up": 0, "two nodes down": 2} {
		t.Run(name, func(t *testing.T) {
			servers := startNodes(t, 5)
			holder := newLocker(t, servers, patient)
			for _, s := range servers[:down] {
				s.Kill()
			}
			lock := mustLockOn(t, holder, servers[down:])
			var lockers []*redlock.Locker
			for range 6 {
				lockers = append(lockers, newLocker(t, servers, patient))
			}
			served := queueUp(t, lockers, servers[down:])
			mustUnlock(t, lock)
			for i := range lockers {
				if got := <-served; got != i {
					t.Errorf("number %d was served as number %d", got, i)
				}
			}
		})
	}
}

// Nobody asks the nodes while a lock is held and all wait.
func TestWaitersAskNothingWhileTheLockIsHeld(t *testing.T) {
	servers := startNodes(t, 5)
	holder, l := newLocker(t, servers, patient), newLocker(t, servers, patient)
	lock := mustLockOn(t, holder, servers, locker.WithTTL(time.Minute), locker.WithoutRenewal())
	served := queueUp(t, []*redlock.Locker{l}, servers)
	for _, s := range servers {
		s.Do("CONFIG", "RESETSTAT")
	}
	select {
	case <-served:
		t.Fatal("served while the lock is held")
	case <-time.After(time.Second):
	}
	for i, s := range servers {
		if n := calls(s, "evalsha"); n != 0 {
			t.Errorf("%d requests to node %d", n, i)
		}
	}
	mustUnlock(t, lock)
	<-served
	free(t, "a", servers...)
}

// Each of three nodes has another waiter at the front of its queue, so that
// each waiter gets one node. If they kept it, all would wait for a lease to end.
func TestSplitVoteIsResolved(t *testing.T) {
	servers := startNodes(t, 3)
	lock := mustLockOn(t, newLocker(t, servers, patient), servers)
	var lockers []*redlock.Locker
	for range servers {
		lockers = append(lockers, newLocker(t, servers, patient))
	}
	served := queueUp(t, lockers, servers)
	for i, s := range servers {
		members := strings.Fields(s.Do("ZRANGE", "lockstile:q:{a}", "0", "-1"))
		s.Do("ZADD", "lockstile:q:{a}", "1", members[(i+1)%len(members)])
	}
	mustUnlock(t, lock)
	for range lockers {
		select {
		case <-served:
		case <-time.After(20 * time.Second): // a lease is half a minute
			t.Fatal("each of them keeps what it has")
		}
	}
	free(t, "a", servers...)
}

// As many locks are waited for as the client has connections to a node. Those who wait send
// nothing, so they must not keep anybody from the locks that are free.
func TestThoseWhoWaitLeaveTheConnectionsToOthers(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 3)
	clients := clientsOf(servers)
	const conns = 2
	for i, c := range clients {
		opts := *c.(*redis.Client).Options()
		opts.PoolSize = conns
		few := redis.NewClient(&opts)
		t.Cleanup(func() { _ = few.Close() })
		clients[i] = few
	}
	other, l := newLocker(t, servers, patient), newLockerOn(t, clients, patient)
	var waiters sync.WaitGroup
	defer waiters.Wait()
	for i := range conns {
		name := fmt.Sprint("taken/", i)
		holder := mustLock(t, other, name)
		waiters.Go(func() {
			if lock, err := l.Lock(patience(t), name); err != nil {
				t.Error(err)
			} else if err := lock.Unlock(patience(t)); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "somebody waits for "+name, func() bool {
			info, err := other.Inspect(patience(t), name)
			return err == nil && info.Waiters == 1
		})
		defer mustUnlock(t, holder)
	}
	ctx, cancel := context.WithTimeout(patience(t), 20*time.Second)
	defer cancel()
	lock, err := l.Lock(ctx, "free")
	if err != nil {
		t.Fatalf("a free lock, while %d others are waited for: %v", conns, err)
	}
	mustUnlock(t, lock)
}
