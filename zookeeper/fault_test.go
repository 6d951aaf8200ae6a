package zookeeper_test

import (
	"context"
	"errors"
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
}

// granted notes a grant, and checks it against the one before.
func (g *grants) granted(worker int, lk *locker.Lock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if lk.Err() != nil {
		return // lost by now: whoever came after may have been here first
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
func (g *grants) everybody(ctx context.Context, workers int) {
	g.t.Helper()
	g.mu.Lock()
	clear(g.n)
	g.mu.Unlock()
	for {
		g.mu.Lock()
		n := len(g.n)
		g.mu.Unlock()
		if n == workers {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			g.t.Fatalf("%d of %d workers have had the lock", n, workers)
		}
	}
}

func TestCrashOfTheLeaderBreaksNeitherExclusionNorTokensAndStopsNobody(t *testing.T) {
	t.Parallel()
	servers := testserver.ZooKeeper(t, 3)
	addrs := []string{servers[0].Addr(), servers[1].Addr(), servers[2].Addr()}
	const workers = 4
	g := &grants{t: t, n: make(map[int]int)}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for w := range workers {
		c := newClient(t, 4*time.Second, addrs...)
		all.Go(func() {
			for ctx.Err() == nil {
				lk, err := c.Lock(ctx, "n")
				if err != nil {
					continue // nobody promises that there is a leader
				}
				g.granted(w, lk)
				_ = lk.Unlock(ctx) // may be lost
			}
		})
	}
	g.everybody(soon(t), workers)
	for range 2 {
		leader := testserver.ZooKeeperLeader(t, servers)
		leader.Kill()
		g.everybody(soon(t), workers)
		leader.Start()
		g.everybody(soon(t), workers)
	}
}

func TestServerThatHasLostItsLeaderConfirmsNothing(t *testing.T) {
	t.Parallel()
	servers := testserver.ZooKeeper(t, 3)
	leader := testserver.ZooKeeperLeader(t, servers)
	for _, s := range servers {
		if s == leader {
			continue
		}
		c := newClient(t, sessionTimeout, s.Addr())
		held := lock(t, c, "n")
		leader.Pause()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := held.Renew(ctx)
		cancel()
		leader.Resume()
		if err == nil {
			t.Error("renewed without the leader")
		}
		return
	}
}

// A server that has lost its leader lists the queue, while the leader may end the
// session of whoever is first. So who has waited for long, or wants to rely on
// what is left, is not served before the leader has confirmed its place.
func TestWaiterIsNotServedByAServerThatHasLostItsLeader(t *testing.T) {
	t.Parallel()
	const timeout = 6 * time.Second
	t.Run("after a long wait", func(t *testing.T) {
		q := newLeaderless(t, timeout)
		<-time.After(timeout / 4) // more than half of what it counts on
		q.loseLeader()
		q.notServed()
	})
	t.Run("with wishes", func(t *testing.T) {
		q := newLeaderless(t, timeout, locker.WithoutRenewal())
		q.loseLeader()
		q.notServed()
	})
}

// Right after its place was made, that is confirmation enough, and what the lock
// counts from.
func TestWaiterThatIsServedWithoutALeaderCountsFromItsPlace(t *testing.T) {
	t.Parallel()
	q := newLeaderless(t, time.Minute, locker.WithTTL(time.Minute))
	queued := time.Now()
	q.loseLeader()
	lk := <-q.served
	if lk == nil {
		t.Fatal("not served")
	}
	valid := time.Minute * 5 / 12
	if late := lk.Deadline().Sub(queued.Add(valid - locker.Drift(valid))); late > time.Millisecond {
		t.Errorf("believed in for %v longer than its place allows", late)
	}
	q.leader.Resume()
	unlock(t, lk)
}

// leaderless is a queue of a holder and a waiter, whose server can lose its leader
// right after the holder has gone.
type leaderless struct {
	t                *testing.T
	leader, follower *testserver.ZooKeeperServer
	proxy            *conformance.Proxy
	held             *locker.Lock
	served           chan *locker.Lock // closed after an error
}

func newLeaderless(t *testing.T, timeout time.Duration, opts ...locker.Option) *leaderless {
	t.Helper()
	servers := testserver.ZooKeeper(t, 3)
	q := &leaderless{t: t, leader: testserver.ZooKeeperLeader(t, servers), follower: servers[0], served: make(chan *locker.Lock, 1)}
	if q.follower == q.leader {
		q.follower = servers[1]
	}
	q.proxy = conformance.NewProxy(t, q.follower.Addr())
	holder, waiter := newClient(t, sessionTimeout, q.leader.Addr()), newClient(t, timeout, q.proxy.Addr())
	q.held = lock(t, holder, "n")
	go func() {
		defer close(q.served)
		lk, err := waiter.Lock(soon(t), "n", opts...)
		if err != nil {
			t.Error(err)
			return
		}
		q.served <- lk
	}()
	waiters(t, holder, "n", 1)
	watched(t, q.follower)
	return q
}

// loseLeader lets the waiter know that the holder has gone when it can no longer
// ask the leader.
func (q *leaderless) loseLeader() {
	q.t.Helper()
	q.proxy.CutReplies() // the notification is on its way
	unlock(q.t, q.held)
	caughtUp(q.t, q.follower, "/lockstile/n", 1)
	q.leader.Pause()
	q.proxy.Deliver()
}

// notServed checks that the waiter is served only when the leader is back.
func (q *leaderless) notServed() {
	q.t.Helper()
	select {
	case <-q.served:
		q.t.Fatal("served without a leader")
	case <-time.After(time.Second): // for what must not happen
	}
	q.leader.Resume()
	if lk := <-q.served; lk != nil {
		unlock(q.t, lk)
	}
}

// A server that lags behind catches up before it says what the queue is.
func TestInspectAtAServerThatLagsSeesWhatWasDoneBefore(t *testing.T) {
	t.Parallel()
	servers := testserver.ZooKeeper(t, 3)
	leader := testserver.ZooKeeperLeader(t, servers)
	follower := servers[0]
	if follower == leader {
		follower = servers[1]
	}
	a, b := newClient(t, sessionTimeout, leader.Addr()), newClient(t, sessionTimeout, follower.Addr())
	unlock(t, lock(t, b, "n")) // connected
	for range 5 {
		follower.Pause()
		for range 100 { // work for it to catch up with
			unlock(t, lock(t, a, "n"))
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

// watched waits until somebody watches a node on s.
func watched(t *testing.T, s *testserver.ZooKeeperServer) {
	t.Helper()
	for ctx := soon(t); s.Stat("zk_watch_count") == 0; {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("nobody watches")
		}
	}
}

// caughtUp waits until s itself knows of only n children.
func caughtUp(t *testing.T, s *testserver.ZooKeeperServer, path string, n int) {
	t.Helper()
	c := newClient(t, sessionTimeout, s.Addr())
	for ctx := soon(t); ; {
		children, _, err := c.conn.Children(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(children) == n {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%d children, want %d", len(children), n)
		}
	}
}

func TestPausedServerLosesTheLockByTheHoldersClock(t *testing.T) {
	t.Parallel()
	s := server(t)
	const timeout = 2 * time.Second
	a := newClient(t, timeout, s.Addr())
	before := time.Now()
	held := lock(t, a, "n")
	if left := held.Deadline().Sub(before); left > time.Since(before)+timeout*5/12 {
		t.Errorf("the lock is believed in for %v of a session timeout of %v", left, timeout)
	}
	s.Pause()
	select {
	case <-held.Lost():
	case <-soon(t).Done():
		t.Fatal("not lost")
	}
	var lost *locker.LostError
	if err := held.Err(); !errors.As(err, &lost) || lost.Reason != locker.Unreachable && lost.Reason != locker.Expired {
		t.Errorf("lost with %v", err)
	}
	s.Resume()
	next := lock(t, newClient(t, timeout, s.Addr()), "n")
	if next.Token() <= held.Token() {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
	unlock(t, next)
}

func TestNodeThatIsDeletedLosesItsLockAndNoOther(t *testing.T) {
	s := server(t)
	c := newClient(t, 2*time.Second, s.Addr())
	names := []string{"a", "b", "c", "d", "e"}
	var locks []*locker.Lock
	for _, name := range names {
		locks = append(locks, lock(t, c, name))
	}
	for _, i := range []int{1, 3} {
		if broken, err := c.Break(soon(t), names[i]); err != nil || !broken {
			t.Fatalf("Break = %v, %v", broken, err)
		}
	}
	for _, i := range []int{1, 3} {
		select {
		case <-locks[i].Lost():
		case <-soon(t).Done():
			t.Fatalf("%q is not lost", names[i])
		}
		if err := locks[i].Unlock(soon(t)); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock of a lost lock: %v", err)
		}
	}
	for _, i := range []int{0, 2, 4} {
		if err := locks[i].Renew(soon(t)); err != nil {
			t.Errorf("%q: %v", names[i], err)
		}
		unlock(t, locks[i])
	}
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
		if fencing.Token(stat.Czxid) != held.Token() {
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
