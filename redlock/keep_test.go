package redlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/internal/redisnode"
	"github.com/lockstile/locker/internal/testserver"
)

// grantedBy returns an attempt that so many of the nodes have granted, from the first on.
func grantedBy(t *testing.T, s *store, nodes int) *attempt {
	t.Helper()
	a := newAttempt(t, s)
	for i := range nodes {
		if st, err := s.ask(&a.parts[i], new(instant), s.nodes[i], redisnode.Ask{}, nil); err != nil || st.First == 0 {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	return a
}

func refuse(srv *testserver.RedisServer) { srv.Do("ACL", "SETUSER", "default", "-eval", "-evalsha") }
func serve(srv *testserver.RedisServer)  { srv.Do("ACL", "SETUSER", "default", "+eval", "+evalsha") }
func keepsIt(srv *testserver.RedisServer, a *attempt) bool {
	return srv.Do("GET", "a") == "-"+a.parts[0].Value
}

func release(t *testing.T, s *store, a *attempt, keep time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return s.Release(ctx, a, keep)
}

// Two of three nodes had granted the lock. One of them keeps it and the other does not
// answer, so when that forgets its lease, a majority could grant it. What the third says,
// which never had it, is no help.
func TestLockIsNotKeptBeforeAMajorityKeepsIt(t *testing.T) {
	s, servers := threeNodes(t)
	a := grantedBy(t, s, 2)
	refuse(servers[1])
	for range 2 {
		if err := release(t, s, a, time.Hour); err == nil || errors.Is(err, locker.ErrLost) {
			t.Fatalf("one of three nodes keeps it: %v", err)
		}
	}
	if !a.left() {
		t.Error("nothing is left to do for a lock that is not kept yet")
	}
	serve(servers[1])
	for range 2 {
		if err := release(t, s, a, time.Hour); err != nil {
			t.Errorf("two of three nodes keep it: %v", err)
		}
	}
	if !keepsIt(servers[0], a) || !keepsIt(servers[1], a) {
		t.Errorf("the keys have %q and %q", servers[0].Do("GET", "a"), servers[1].Do("GET", "a"))
	}
}

// One of the two that had granted the lock has forgotten it. Asked again, both say what
// they said before.
func TestKeepOfALockThatAMajorityHasNoMoreSaysThatItIsLost(t *testing.T) {
	s, servers := threeNodes(t)
	a := grantedBy(t, s, 2)
	servers[1].Do("DEL", "a")
	for range 2 {
		if err := release(t, s, a, time.Hour); !errors.Is(err, locker.ErrLost) {
			t.Errorf("%v", err)
		}
	}
}

// A majority keeps the lock, and the third node serves again later. It is asked to keep it
// in the background, not to give it back: the more nodes keep it, the more of them may fail.
func TestNodeThatCouldNotKeepTheLockIsAskedAgain(t *testing.T) {
	s, servers := threeNodes(t)
	a := grantedBy(t, s, 3)
	refuse(servers[2])
	if err := release(t, s, a, time.Hour); err != nil {
		t.Fatal(err)
	}
	serve(servers[2])
	for deadline := time.Now().Add(20 * time.Second); s.locks.UnderWay(contract.Key{}) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is still not kept")
		}
	}
	for i, srv := range servers {
		if !keepsIt(srv, a) {
			t.Errorf("on node %d the key has %q", i, srv.Do("GET", "a"))
		}
	}
	if a.left() {
		t.Error("all nodes keep it, and something is left to do")
	}
}

// The node that did not answer is asked again when nothing of the time remains.
func TestNodeThatCouldNotKeepTheLockInTimeGivesItBack(t *testing.T) {
	s, servers := threeNodes(t)
	a := grantedBy(t, s, 3)
	refuse(servers[2])
	if err := release(t, s, a, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // it is what is tested
	serve(servers[2])
	for _, srv := range servers {
		srv.Await("it to be free", func() bool { return srv.Do("EXISTS", "a") == "0" })
	}
}

// The attempt has a place in the node's queue as well, which is given up when nothing of the
// time remains. Asked again, the node still says that it has kept the lock.
func TestKeptLockIsKeptThoughAPlaceIsGivenUp(t *testing.T) {
	s, servers := threeNodes(t)
	a := grantedBy(t, s, 1)
	n, p := s.nodes[0], &a.parts[0]
	p.queued.Store(true)
	until := driver.Now().Add(time.Hour)
	for range 2 {
		if err := n.release(p, until); err != nil || !keepsIt(servers[0], a) {
			t.Errorf("the key has %q: %v", servers[0].Do("GET", "a"), err)
		}
		if err := n.withdraw(t.Context(), p, 0); err != nil || p.left() {
			t.Errorf("left: %v, %v", p.left(), err)
		}
	}
}
