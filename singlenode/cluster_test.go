package singlenode_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

func newClusterLocker(t *testing.T, servers []*testserver.RedisServer) *singlenode.Locker {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return newLockerOn(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), singlenode.Options{})
}

// A script may only touch keys of one slot: the bookkeeping of a name must lie
// where the name does, whatever braces it has.
func TestEveryNameWorksInACluster(t *testing.T) {
	servers := testserver.RedisCluster(t, 3)
	holder, l := newClusterLocker(t, servers), newClusterLocker(t, servers)
	for _, name := range []string{"a", "b", "c", "{a}", "{a}b", "a}b", "{}", "{}x", "{", "}", "{{a}}", "x{y", "invoices/42"} {
		held := mustLock(t, holder, name)
		if _, err := l.TryLock(patience(t), name); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of %q: %v", name, err)
		}
		grants := waitIn(t, holder, name, l)
		mustUnlock(t, held)
		g := next(t, grants)
		if g.lock.Token() <= held.Token() {
			t.Errorf("%q: token %d after %d", name, g.lock.Token(), held.Token())
		}
		mustUnlock(t, g.lock)
	}
}

// The renewals of both masters are due together.
func TestSilentMasterLosesNoLocksOfTheOthers(t *testing.T) {
	servers := testserver.RedisCluster(t, 2)
	l := newClusterLocker(t, servers)
	var here, there []*locker.Lock
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		lock := mustLock(t, l, name, locker.WithTTL(6*time.Second))
		if reply, _ := servers[0].TryDo("EXISTS", name); reply == "1" {
			here = append(here, lock)
		} else {
			there = append(there, lock)
		}
	}
	if len(here)*len(there) == 0 {
		t.Fatal("all names are on one master")
	}
	servers[1].Pause()
	defer servers[1].Resume()
	for _, lock := range there {
		<-lock.Lost()
	}
	past := time.Now().Add(5 * time.Second)
	for _, lock := range here {
		for lock.Deadline().Before(past) {
			if err := lock.Err(); err != nil {
				t.Fatalf("lost with the other master: %v", err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// A Cluster counts only the listeners on the node that publishes, so nobody is
// taken for dead because nobody was counted: each dead waiter costs its claim time.
func TestDeadWaitersInAClusterCostTheirClaimTimeEach(t *testing.T) {
	servers := testserver.RedisCluster(t, 3)
	holder, l := newClusterLocker(t, servers), newClusterLocker(t, servers)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Addr()}})
	defer rdb.Close()
	held := mustLock(t, holder, "a", locker.WithTTL(time.Minute))
	const dead = 10
	for i := range dead {
		if err := rdb.ZAdd(patience(t), "lockstile:q:{a}", redis.Z{Score: float64(i), Member: fmt.Sprintf("dead%d:nobody", i)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	grants := make(chan grant, 1)
	go func() {
		lock, err := l.Lock(patience(t), "a")
		grants <- grant{0, lock, err}
	}()
	for {
		if info, err := holder.Inspect(patience(t), "a"); err == nil && info.Waiters == dead+1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	mustUnlock(t, held)
	mustUnlock(t, next(t, grants).lock) // 20 s, where the lease has a minute
}

// Those that should have asked long ago are dropped without a claim.
func TestDeadWaitersInAClusterThatAreOverdueCostNothing(t *testing.T) {
	servers := testserver.RedisCluster(t, 3)
	holder, l := newClusterLocker(t, servers), newClusterLocker(t, servers)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Addr()}})
	defer rdb.Close()
	held := mustLock(t, holder, "a", locker.WithTTL(time.Minute))
	for i := range 100 { // 50 s of claims
		member := fmt.Sprintf("dead%d:nobody", i)
		if err := errors.Join(rdb.ZAdd(patience(t), "lockstile:q:{a}", redis.Z{Score: float64(i), Member: member}).Err(),
			rdb.ZAdd(patience(t), "lockstile:d:{a}", redis.Z{Score: 1, Member: member}).Err()); err != nil {
			t.Fatal(err)
		}
	}
	grants := waitIn(t, holder, "a", l)
	mustUnlock(t, held)
	mustUnlock(t, next(t, grants).lock)
}

// A Cluster passes what is published on from master to master, and says nothing where
// it cannot: here the master of the lock has forgotten the one that the waiter
// listens to.
func TestWaiterIsServedThoughTheClusterLosesItsWord(t *testing.T) {
	servers := testserver.RedisCluster(t, 2)
	holder, l := newClusterLocker(t, servers), newClusterLocker(t, servers)
	var held []*locker.Lock
	var grants []<-chan grant
	for _, s := range servers {
		s.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		lock := mustLock(t, holder, nameOn(t, s), locker.WithTTL(time.Hour))
		held, grants = append(held, lock), append(grants, waitIn(t, holder, lock.Name(), l))
	}
	listening, other := 0, 1
	if servers[0].Do("PUBSUB", "CHANNELS", "lockstile:w:*") == "" {
		listening, other = other, listening
	}
	servers[other].Do("CLUSTER", "FORGET", servers[listening].Do("CLUSTER", "MYID"))
	mustUnlock(t, held[other])
	mustUnlock(t, next(t, grants[other]).lock)
	mustUnlock(t, held[listening])
	mustUnlock(t, next(t, grants[listening]).lock)
}

// nameOn returns the name of a lock that is on the master s.
func nameOn(t *testing.T, s *testserver.RedisServer) string {
	t.Helper()
	for i := range 100 {
		name := fmt.Sprint("lock", i)
		if reply, _ := s.TryDo("EXISTS", name); reply == "0" {
			return name
		}
	}
	t.Fatal("no name is on the master")
	return ""
}
