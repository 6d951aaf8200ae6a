package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
)

// grants watches over everybody who holds one name.
type grants struct {
	t    *testing.T
	mu   sync.Mutex
	last *locker.Lock
	n    map[int]int // grants of each worker since the last reset
	errs map[int]error
}

// refused notes what a worker was told last.
func (g *grants) refused(worker int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.errs[worker] = err
}

// granted notes a grant, and checks it against the one before.
func (g *grants) granted(worker int, lk *locker.Lock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if lk.Err() != nil {
		return // lost by now: the next holder may have been here first
	}
	if g.last != nil && g.last.Err() == nil {
		g.t.Errorf("token %d was granted while the holder of token %d believes", lk.Token(), g.last.Token())
	}
	if g.last != nil && lk.Token() <= g.last.Token() {
		g.t.Errorf("token %d was granted after token %d", lk.Token(), g.last.Token())
	}
	g.last = lk
	g.n[worker]++
}

// everybody waits until each worker has had the lock again.
func (g *grants) everybody(workers int) {
	g.t.Helper()
	g.mu.Lock()
	clear(g.n)
	clear(g.errs)
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.t.Failed() {
			g.t.Logf("they had the lock so often: %v; and were told: %v", g.n, g.errs)
		}
	}()
	until(g.t, fmt.Sprintf("each of %d workers to have the lock", workers), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.n) == workers
	})
}

func TestCrashOfTheLeaderBreaksNeitherExclusionNorTokensAndStopsNobody(t *testing.T) {
	t.Parallel()
	servers := testserver.ZooKeeper(t, 3)
	addrs := []string{servers[0].Addr(), servers[1].Addr(), servers[2].Addr()}
	const workers = 4
	g := &grants{t: t, n: make(map[int]int), errs: make(map[int]error)}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for w := range workers {
		c := newClient(t, sessionTimeout, addrs...)
		all.Go(func() {
			for ctx.Err() == nil {
				lk, err := c.Lock(ctx, "n")
				if err != nil {
					g.refused(w, fmt.Errorf("%w (%v at %s)", err, c.conn.State(), c.conn.Server()))
					continue // nobody promises that there is a leader
				}
				g.granted(w, lk)
				_ = lk.Unlock(ctx) // may be lost
			}
		})
	}
	g.everybody(workers)
	crashes := 2 // the second is that of the server that has led since the first
	if testing.Short() {
		crashes = 1
	}
	for range crashes {
		leader := testserver.ZooKeeperLeader(t, servers)
		leader.Kill()
		g.everybody(workers)
		leader.Start()
		g.everybody(workers)
	}
}

func TestServerThatHasLostItsLeaderConfirmsNothing(t *testing.T) {
	t.Parallel()
	servers := testserver.ZooKeeper(t, 3)
	leader, follower := leaderAndFollower(t, servers)
	held := lock(t, newClient(t, sessionTimeout, follower.Addr()), "n")
	leader.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := held.Renew(ctx); err == nil {
		t.Error("renewed without the leader")
	}
	leader.Resume()
}

// A server that has lost its leader lists the queue, while the leader may end the session
// of the first in it. So a holder that it serves believes for no longer than the leader's
// last confirmation allows.
//
//	a holder and a waiter; the notification that the holder has gone is held back
//	until the leader does not answer
func TestWaiterThatIsServedWithoutALeaderCountsFromWhatItHasConfirmed(t *testing.T) {
	t.Parallel()
	const timeout = time.Minute
	minute := locker.WithTTL(timeout)
	servers := testserver.ZooKeeper(t, 3)
	leader, follower := leaderAndFollower(t, servers)
	proxy := conformance.NewProxy(t, follower.Addr())
	holder, waiter := newClient(t, timeout, leader.Addr()), newClient(t, timeout, proxy.Addr())
	held := lock(t, holder, "n", minute)
	served := make(chan *locker.Lock, 1)
	go func() {
		defer close(served)
		lk, err := waiter.Lock(soon(t), "n", minute, locker.WithoutRenewal())
		if err != nil {
			t.Error(err)
			return
		}
		served <- lk
	}()
	waiters(t, holder, "n", 1)
	until(t, "a watch", func() bool { return follower.Stat("zk_watch_count") > 0 })
	proxy.CutReplies()
	unlock(t, held)
	caughtUp(t, follower, "/lockstile/n", 1)
	leader.Pause()
	paused := time.Now()
	proxy.Deliver()
	lk := <-served
	if lk == nil {
		t.Fatal("not served")
	}
	if late := lk.Deadline().Sub(paused.Add(timeout * 5 / 12)); late > 0 {
		t.Errorf("believed in for %v longer than what was confirmed allows", late)
	}
	leader.Resume()
	unlock(t, lk)
}

func leaderAndFollower(t *testing.T, servers []*testserver.ZooKeeperServer) (leader, follower *testserver.ZooKeeperServer) {
	t.Helper()
	leader = testserver.ZooKeeperLeader(t, servers)
	if servers[0] == leader {
		return leader, servers[1]
	}
	return leader, servers[0]
}

// A server that lags behind catches up before it says what the queue is.
func TestInspectAtAServerThatLagsSeesWhatWasDoneBefore(t *testing.T) {
	t.Parallel()
	servers := testserver.ZooKeeper(t, 3)
	leader, follower := leaderAndFollower(t, servers)
	a, b := newClient(t, sessionTimeout, leader.Addr()), newClient(t, sessionTimeout, follower.Addr())
	unlock(t, lock(t, b, "n")) // connected
	for range 2 {
		follower.Pause()
		for range 100 { // work for it to catch up with
			if err := lock(t, a, "n").Unlock(soon(t)); err != nil && !errors.Is(err, locker.ErrUnavailable) { // it may take longer than Unlock has
				t.Fatal(err)
			}
		}
		held := lock(t, a, "n")
		info := make(chan locker.Info, 1)
		go func() {
			ctx := soon(t)
			i, err := b.Inspect(ctx, "n")
			for errors.Is(err, locker.ErrUnavailable) && ctx.Err() == nil { // the leader had given the follower up
				i, err = b.Inspect(ctx, "n")
			}
			if err != nil {
				t.Error(err)
			}
			info <- i
		}()
		follower.Resume()
		if i := <-info; i.Token != held.Token() {
			t.Errorf("a lock with token %d is shown as %+v", held.Token(), i)
		}
		unlock(t, held)
	}
}

// caughtUp waits until s itself knows of only n children.
func caughtUp(t *testing.T, s *testserver.ZooKeeperServer, path string, n int) {
	t.Helper()
	c := newClient(t, sessionTimeout, s.Addr())
	until(t, "what the leader knows", func() bool {
		children, _, err := c.conn.Children(path)
		if err != nil {
			t.Fatal(err)
		}
		return len(children) == n
	})
}

func TestWaiterWhoseNodeIsDeletedWaitsOn(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, a, "n")
	served := make(chan error, 1)
	go func() {
		lk, err := b.Lock(soon(t), "n")
		if err == nil {
			err = lk.Unlock(soon(t))
		}
		served <- err
	}()
	waiters(t, a, "n", 1)
	children, _, err := a.conn.Children("/lockstile/n")
	if err != nil || len(children) != 2 {
		t.Fatalf("children %q, %v", children, err)
	}
	for _, node := range children {
		_, stat, err := a.conn.Get("/lockstile/n/" + node)
		if err != nil {
			t.Fatal(err)
		}
		if fencing.Token(stat.Czxid)<<10 != held.Token() {
			if err := a.conn.Delete("/lockstile/n/"+node, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	unlock(t, held)
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}
