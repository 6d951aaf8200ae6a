package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
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

// The leader learns of a client's signs of life from the server that the client
// is connected to. If that one stops right after a renewal, the leader has not
// heard of it, and counts from the sign before: here nearly a ping's interval
// old.
func TestServerThatStopsRightAfterARenewalBreaksNoExclusion(t *testing.T) {
	servers := testserver.ZooKeeper(t, 3)
	leader := testserver.ZooKeeperLeader(t, servers)
	var follower *testserver.ZooKeeperServer
	for _, s := range servers {
		if s != leader {
			follower = s
		}
	}
	const timeout = 3 * time.Second
	for range 2 {
		holder := newClient(t, timeout, follower.Addr())
		waiter := newClient(t, timeout, leader.Addr())
		held := lock(t, holder, "n", locker.WithoutRenewal())
		next := make(chan error, 1)
		var all sync.WaitGroup
		all.Go(func() {
			lk, err := waiter.Lock(soon(t), "n")
			if err == nil && held.Err() == nil {
				err = errors.New("granted while the first holder believes")
			}
			if err == nil {
				err = lk.Unlock(soon(t))
			}
			next <- err
		})
		waiters(t, waiter, "n", 1)
		<-time.After(timeout / 4) // the zk client gives no sign meanwhile: it pings after a third
		if err := held.Renew(soon(t)); err != nil {
			t.Fatal(err)
		}
		follower.Pause()
		if err := <-next; err != nil {
			t.Error(err)
		}
		follower.Resume()
		all.Wait()
	}
}

func TestServerThatHasLostItsLeaderConfirmsNothing(t *testing.T) {
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

// A list that says that nobody is ahead may come from a server that has lost
// its leader: it is no grant.
func TestWaiterIsNotServedByAServerThatHasLostItsLeader(t *testing.T) {
	servers := testserver.ZooKeeper(t, 3)
	leader := testserver.ZooKeeperLeader(t, servers)
	follower := servers[0]
	if follower == leader {
		follower = servers[1]
	}
	p := conformance.NewProxy(t, follower.Addr())
	a, b := newClient(t, sessionTimeout, leader.Addr()), newClient(t, sessionTimeout, p.Addr())
	held := lock(t, a, "n")
	served := make(chan error, 1)
	go func() {
		_, err := b.Lock(soon(t), "n")
		served <- err
	}()
	waiters(t, a, "n", 1)
	watched(t, follower)
	p.CutReplies() // the notification is on its way
	unlock(t, held)
	caughtUp(t, follower, "/lockstile/n", 1)
	leader.Pause()
	p.Deliver()
	select {
	case err := <-served:
		t.Fatalf("served without a leader, error %v", err)
	case <-time.After(time.Second): // for what must not happen
	}
	leader.Resume()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A server that lags behind catches up before it says what the queue is.
func TestInspectAtAServerThatLagsSeesWhatWasDoneBefore(t *testing.T) {
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
			i, err := b.Inspect(soon(t), "n")
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

// A request that is delayed until its connection has been replaced, its attempt
// has failed and what it left has been looked for, makes no place any more.
func TestRequestThatArrivesAfterTheCleanUpMakesNoPlace(t *testing.T) {
	s := server(t)
	p := conformance.NewProxy(t, s.Addr())
	var addr atomic.Value
	addr.Store(p.Addr())
	session := zookeeper.NewSession(func(network, _ string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout(network, addr.Load().(string), timeout)
	})
	conn, _, err := zk.Connect([]string{s.Addr()}, 6*time.Second, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a, b := newLocker(t, conn, zookeeper.Options{Session: session}), newClient(t, sessionTimeout, s.Addr())
	keep(t, a, conn, "n")
	keep(t, a, conn, "n2")
	p.Cut()
	addr.Store(s.Addr()) // for the next connection of the same session
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := a.TryLock(ctx, "n"); !errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("TryLock without an answer: %v", err)
	}
	a.AwaitSweeps()
	p.Deliver()
	for ctx := soon(t); p.Conns() > 0; {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the old connection is still there")
		}
	}
	held := lock(t, b, "n")
	if info, err := b.Inspect(soon(t), "n"); err != nil || info.Waiters != 0 {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	unlock(t, held)
}

// The zk client keeps a request that it could not send, also until after the
// session has ended, and then sends it in the next one: long after its attempt
// failed, and with nobody left who knows of it.
func TestRequestThatIsSentInTheNextSessionMakesNoPlace(t *testing.T) {
	s := server(t)
	var mu sync.Mutex // the network: held while it is down
	var last net.Conn
	session := zookeeper.NewSession(func(network, _ string, timeout time.Duration) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		var err error
		last, err = net.DialTimeout(network, s.Addr(), timeout)
		return last, err
	})
	// With fewer servers the client drops such a request before it goes on.
	addrs := []string{"127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"}
	conn, _, err := zk.Connect(addrs, time.Second, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a, b := newLocker(t, conn, zookeeper.Options{Session: session}), newClient(t, sessionTimeout, s.Addr())
	keep(t, b, b.conn, "n2")
	keep(t, a, conn, "n")
	id := conn.SessionID()

	mu.Lock()
	last.Close()
	disconnected(t, conn)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	_, err = a.TryLock(ctx, "n")
	cancel()
	if err == nil {
		t.Error("TryLock succeeded without a network")
	}
	anchorGone(t, b.conn)
	mu.Unlock()

	unlock(t, lock(t, a, "n2"))
	if conn.SessionID() == id {
		t.Fatal("the session has not ended: nothing is tested")
	}
	held := lock(t, b, "n")
	if info, err := b.Inspect(soon(t), "n"); err != nil || info.Waiters != 0 {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	unlock(t, held)
}

// keep locks a name, and puts a node beside its places: the server would remove
// the queue soon otherwise, and refuse every late request for that reason.
func keep(t *testing.T, l locker.Locker, conn *zk.Conn, name string) {
	t.Helper()
	held := lock(t, l, name)
	defer unlock(t, held)
	if _, err := conn.Create(zookeeper.DefaultBase+"/"+name+"/keep", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
}

func disconnected(t *testing.T, conn *zk.Conn) {
	t.Helper()
	for ctx := soon(t); conn.State() == zk.StateHasSession; {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the client does not notice")
		}
	}
}

// anchorGone waits until only one of two sessions is left.
func anchorGone(t *testing.T, conn *zk.Conn) {
	t.Helper()
	for ctx := soon(t); ; {
		nodes, _, err := conn.Children(zookeeper.DefaultBase)
		if err != nil {
			t.Fatal(err)
		}
		anchors := 0
		for _, node := range nodes {
			if strings.HasPrefix(node, "%session-") {
				anchors++
			}
		}
		if anchors == 1 {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the session has not ended")
		}
	}
}

// An attempt may end before its request has got as far as the connection, so
// that its clean-up could overtake it.
func TestAttemptsThatAreCutShortLeaveNothing(t *testing.T) {
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	const names, attempts = 64, 40
	for i := range names {
		keep(t, c, c.conn, fmt.Sprint(i))
	}
	var all sync.WaitGroup
	for i := range names {
		all.Go(func() {
			for n := range attempts {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n)*100*time.Microsecond)
				if lk, err := c.TryLock(ctx, fmt.Sprint(i)); err == nil {
					_ = lk.Unlock(soon(t))
				}
				cancel()
			}
		})
	}
	all.Wait()
	c.AwaitSweeps()
	for i := range names {
		children, _, err := c.conn.Children(fmt.Sprint(zookeeper.DefaultBase, "/", i))
		if err != nil || len(children) != 1 {
			t.Errorf("children %q, error %v", children, err)
		}
	}
}

// The place that was made for the next goroutine in line, in the transaction
// whose reply was lost, must not stay ahead of the one that it then makes.
func TestLostReplyOfAHandOverLeavesNoOrphan(t *testing.T) {
	s := server(t)
	p := conformance.NewProxy(t, s.Addr())
	a, b := newClient(t, sessionTimeout, p.Addr()), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, a, "n")
	served := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		close(ready)
		lk, err := a.Lock(soon(t), "n")
		if err == nil {
			err = lk.Unlock(soon(t))
		}
		served <- err
	}()
	<-ready
	p.CutReplies()
	err := held.Unlock(soon(t))
	if err != nil && !errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("Unlock whose reply is lost: %v", err)
	}
	p.Heal()
	if err := <-served; err != nil {
		t.Errorf("the next goroutine: %v", err)
	}
	unlock(t, lock(t, b, "n"))
}

// The session lives on, so nothing but the clean-up frees the lock.
func TestUnlockThatWasNotHeardIsMadeUpFor(t *testing.T) {
	s := server(t)
	p := conformance.NewProxy(t, s.Addr())
	a, b := newClient(t, sessionTimeout, p.Addr()), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, a, "n")
	id := a.conn.SessionID()
	p.Cut()
	if err := held.Unlock(soon(t)); !errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("Unlock without a network: %v", err)
	}
	p.Heal()
	unlock(t, lock(t, b, "n"))
	if a.conn.SessionID() != id {
		t.Log("the session has ended: this machine is too slow for the test")
	}
}

func TestPausedServerLosesTheLockByTheHoldersClock(t *testing.T) {
	s := server(t)
	const timeout = 2 * time.Second
	a := newClient(t, timeout, s.Addr())
	before := time.Now()
	held := lock(t, a, "n")
	if left := held.Deadline().Sub(before); left > time.Since(before)+timeout*2/3 {
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
