package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

// hanging returns a Locker that gives a node an hour to answer.
func hanging(t *testing.T, servers []*testserver.RedisServer) *redlock.Locker {
	t.Helper()
	var clients []redis.UniversalClient
	for _, s := range servers {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: time.Hour}))
	}
	return newLockerOn(t, clients, redlock.Options{DurableNodes: true, NodeTimeout: time.Hour})
}

// A node that hangs takes connections and answers nothing. The lock must not wait
// for it.
func TestNodeThatHangsDoesNotHoldUpLocks(t *testing.T) {
	t.Parallel()
	for name, warm := range map[string]bool{"connected before": true, "never connected": false} {
		t.Run(name, func(t *testing.T) {
			servers := startNodes(t, 5)
			l := hanging(t, servers)
			if warm {
				mustUnlock(t, mustLockOn(t, l, servers))
				free(t, "a", servers...)
			}
			servers[0].Pause()
			for range 20 {
				mustUnlock(t, mustLock(t, l, "a"))
			}
			lock := mustLock(t, l, "b")
			if _, err := hanging(t, servers).TryLock(patience(t), "b"); !errors.Is(err, locker.ErrTaken) {
				t.Error(err)
			}
			mustUnlock(t, lock)
			servers[0].Resume()
			free(t, "a", servers...)
		})
	}
}

// Two nodes learn of the last unlock later than the others, and a third hangs. The
// first two are looked at again; the third is not heard out, which takes an hour.
func TestNodeThatHangsIsNotHeardOutWhereOthersLagBehind(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	for verb, take := range map[string]func(locker.Locker) (*locker.Lock, error){
		"Lock":    func(l locker.Locker) (*locker.Lock, error) { return l.Lock(patience(t), "a") },
		"TryLock": func(l locker.Locker) (*locker.Lock, error) { return l.TryLock(patience(t), "a") },
	} {
		l := hanging(t, servers)
		mustUnlock(t, mustLockOn(t, l, servers))
		free(t, "a", servers...)
		servers[0].Pause()
		for _, s := range servers[3:] {
			s.Do("SET", "a", "the last holder", "PX", "30")
		}
		lock, err := take(l)
		if err != nil {
			t.Errorf("%s: %v", verb, err)
		} else {
			mustUnlock(t, lock)
		}
		servers[0].Resume()
		free(t, "a", servers...)
	}
}

// Waiters are served and locks handed over though nothing is heard from one node,
// and though another comes back in between without its data.
func TestWaitersAreServedWhileNodesHangAndForget(t *testing.T) {
	whileNodesHangAndForget(t, func(t *testing.T, lockers []*redlock.Locker) { crowd(t, lockers, 16, 2) })
}

func whileNodesHangAndForget(t *testing.T, work func(*testing.T, []*redlock.Locker)) {
	t.Helper()
	servers := startNodes(t, 5)
	opts := redlock.Options{DurableNodes: true, NodeTimeout: 5 * time.Second}
	var lockers []*redlock.Locker
	for range 4 {
		lockers = append(lockers, newLocker(t, servers, opts))
	}
	servers[0].Pause()
	work(t, lockers)
	servers[0].Resume()
	work(t, lockers)
	forget(servers[1]) // nobody holds the lock now
	work(t, lockers)
	for _, s := range servers {
		eventually(t, "nothing is left", func() bool { return s.Do("EXISTS", "a", "lockstile:q:{a}") == "0" })
	}
}

// With default options the validity that is left of a short lease must be
// worth having though two of five nodes do not answer: one hangs, one is gone.
func TestShortLeaseIsWorthHavingWithTwoNodesDown(t *testing.T) {
	servers := startNodes(t, 5)
	l := newLocker(t, servers, redlock.Options{DurableNodes: true, NodeTimeout: time.Second})
	servers[0].Pause()
	servers[1].Kill()
	eventually(t, "a lock that is worth having, and its renewal", func() bool { // three of three nodes must be quick
		lock, err := l.Lock(patience(t), "a", locker.WithTTL(2*time.Second), locker.WithMinValidity(time.Second))
		if err == nil {
			err = errors.Join(lock.Renew(patience(t)), lock.Unlock(patience(t)))
		}
		return err == nil
	})
	free(t, "a", servers[2:]...)
	servers[0].Resume()
	free(t, "a", servers[0])
}

func TestLockIsUnavailableWithThreeOfFiveDownAndNothingIsHeld(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	l := newLocker(t, servers, redlock.Options{DurableNodes: true, NodeTimeout: 5 * time.Second})
	for _, s := range servers[:3] {
		s.Kill()
	}
	for name, lock := range map[string]func() (*locker.Lock, error){
		"Lock":    func() (*locker.Lock, error) { return l.Lock(patience(t), "a") },
		"TryLock": func() (*locker.Lock, error) { return l.TryLock(patience(t), "a") },
	} {
		_, err := lock()
		var q *redlock.QuorumError
		if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) || !errors.As(err, &q) {
			t.Fatalf("%s: %v", name, err)
		}
		failed := 0
		for _, o := range q.Nodes {
			if o.Err != nil {
				failed++
			}
		}
		if failed != 3 || !strings.Contains(err.Error(), servers[0].Addr()) {
			t.Errorf("%s: %d nodes failed: %v", name, failed, err)
		}
		free(t, "a", servers[3:]...)
	}
}

func TestHolderLearnsThatAMajorityHasForgotten(t *testing.T) {
	servers := startNodes(t, 5)
	l := newLocker(t, servers, patient)
	lock := mustLockOn(t, l, servers, locker.WithoutRenewal())
	for i, s := range servers[:3] {
		if i == 2 {
			mustRenew(t, lock) // two of five nodes have forgotten it
		}
		s.Do("DEL", "a")
	}
	eventually(t, "three of five nodes have forgotten it", func() bool { // a machine that stalls may make it unavailable before
		err := lock.Renew(patience(t))
		if err == nil {
			t.Fatal("two of five nodes have renewed it")
		}
		return errors.Is(err, locker.ErrLost)
	})
	free(t, "a", servers...) // also where it was renewed meanwhile
}

// Of five nodes one was never asked, two renew and two are down.
func TestRenewalThatFailsNamesAllNodesAndWhatEachSaid(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	servers[0].Do("SET", "a", "a stranger's")
	l := newLocker(t, servers, patient)
	lock := mustLockOn(t, l, servers, locker.WithoutRenewal(), locker.WithTTL(time.Minute))
	eventually(t, "all have answered", func() bool { return redlock.UnderWay(l) == 0 })
	servers[3].Kill()
	servers[4].Kill()
	err := lock.Renew(patience(t))
	if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "2 of 5 nodes agreed, 3 are needed") {
		t.Error(err)
	}
	for _, s := range servers {
		if !strings.Contains(fmt.Sprint(err), s.Addr()) {
			t.Errorf("%s is not in: %v", s.Addr(), err)
		}
	}
}

// All five nodes have the lock, and the answer of one is lost. It counts for as much
// as the others when two of those forget.
func TestRenewalAsksANodeWhoseGrantWasNotHeard(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"still waited for": 10 * time.Second, "given up": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			servers := startNodes(t, 5)
			p := newProxy(t, servers[4])
			var clients []redis.UniversalClient
			for _, addr := range []string{servers[0].Addr(), servers[1].Addr(), servers[2].Addr(), servers[3].Addr(), p.Addr().String()} {
				clients = append(clients, redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: -1}))
			}
			l := newLockerOn(t, clients, redlock.Options{DurableNodes: true, NodeTimeout: timeout})
			var lock *locker.Lock
			eventually(t, "granted by a node that is not heard", func() bool {
				p.mute.Store(false)
				mustUnlock(t, mustLockOn(t, l, servers)) // every node is connected
				free(t, "a", servers...)
				eventually(t, "all have answered", func() bool { return redlock.UnderWay(l) == 0 })
				p.mute.Store(true)
				lock = lockOn(t, l, servers, locker.WithoutRenewal())
				return lock != nil
			})
			if name == "given up" {
				eventually(t, "no request is under way", func() bool { return redlock.UnderWay(l) == 0 })
			}
			p.mute.Store(false)
			servers[0].Do("DEL", "a")
			servers[1].Do("DEL", "a")
			mustRenew(t, lock)                                                   // three of five nodes have it
			if err := lock.Unlock(patience(t)); errors.Is(err, locker.ErrLost) { // it may give up on the silent node
				t.Error("three of five nodes had it:", err)
			}
			free(t, "a", servers...)
		})
	}
}

// proxy passes requests on to a server, and its replies while it is not mute.
type proxy struct {
	net.Listener
	mute atomic.Bool
}

func newProxy(t *testing.T, s *testserver.RedisServer) *proxy {
	t.Helper()
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: in}
	t.Cleanup(func() { _ = in.Close() })
	go func() {
		for {
			conn, err := in.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", s.Addr())
			if err != nil {
				_ = conn.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, conn); _ = out.Close() }()
			go func() { _, _ = io.Copy(writer{p, conn}, out); _ = conn.Close() }()
		}
	}()
	return p
}

// writer loses what is written while its proxy is mute.
type writer struct {
	*proxy
	net.Conn
}

func (w writer) Write(b []byte) (int, error) {
	if w.mute.Load() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func TestUnusableNodesAreNamedAndNothingIsHeld(t *testing.T) {
	servers := []*testserver.RedisServer{testserver.Redis(t), testserver.Redis(t, "--requirepass", "the right one"), testserver.Redis(t)}
	var clients []redis.UniversalClient
	for i, s := range servers {
		opts := &redis.Options{Addr: s.Addr()}
		if i == 1 {
			opts.Password = "wrong-one"
		}
		clients = append(clients, redis.NewClient(opts))
	}
	l := newLockerOn(t, clients, patient)
	mustUnlock(t, mustLock(t, l, "a")) // two of three will do
	servers[0].Kill()
	_, err := l.TryLock(patience(t), "a")
	if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "check the user name and the password") ||
		strings.Contains(fmt.Sprint(err), "wrong-one") {
		t.Error(err)
	}
	free(t, "a", servers[1:]...)
}

func TestConstructorRefusesWhatCannotWork(t *testing.T) {
	c := func(addr string) redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: addr}) }
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"s:1"}})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"s:1"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "s:1"}})
	defer ring.Close()
	for _, test := range []struct {
		nodes []redis.UniversalClient
		opts  redlock.Options
		want  string
	}{
		{[]redis.UniversalClient{c("a:1"), c("b:1")}, redlock.Options{}, "singlenode"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), nil}, redlock.Options{}, "nil"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), (*redis.Client)(nil)}, redlock.Options{}, "nil"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), c("a:1")}, redlock.Options{}, "nodes 1 and 3 are both a:1"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), failover}, redlock.Options{}, "Sentinel"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), cluster}, redlock.Options{}, "*redis.ClusterClient"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), ring}, redlock.Options{}, "node 3 is a *redis.Ring"},
		{[]redis.UniversalClient{c("a:1"), struct{ *redis.Ring }{ring}, c("c:1")}, redlock.Options{}, "node 2 is a struct { *redis.Ring }"},
		{[]redis.UniversalClient{struct{ redis.UniversalClient }{c("a:1")}, c("b:1"), c("c:1")}, redlock.Options{}, "node 1 is a struct { redis.UniversalClient }"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), c("c:1")}, redlock.Options{NodeTimeout: -1}, "negative"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), c("c:1")}, redlock.Options{MaxTTL: time.Millisecond}, "largest TTL"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), c("c:1")}, redlock.Options{MaxTTL: locker.MaxTTL + 1}, "largest TTL"},
		{[]redis.UniversalClient{c("a:1"), c("b:1"), c("c:1")}, redlock.Options{KeepCounter: -1}, "KeepCounter"},
	} {
		if _, err := redlock.New(test.nodes, test.opts); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}

// One server that goes by two addresses would have two votes.
func TestServerUnderTwoAddressesIsAnError(t *testing.T) {
	servers := startNodes(t, 2)
	_, port, _ := net.SplitHostPort(servers[0].Addr())
	l := newLockerOn(t, []redis.UniversalClient{
		redis.NewClient(&redis.Options{Addr: servers[0].Addr()}),
		redis.NewClient(&redis.Options{Addr: servers[1].Addr()}),
		redis.NewClient(&redis.Options{Addr: net.JoinHostPort("localhost", port)}),
	}, patient)
	eventually(t, "it is noticed", func() bool {
		lock, err := l.TryLock(patience(t), "a")
		if err == nil {
			mustUnlock(t, lock)
		}
		return err != nil && strings.Contains(err.Error(), "are one server")
	})
	free(t, "a", servers...)
}

func TestTTLOverTheLimitIsAnErrorThatNamesIt(t *testing.T) {
	servers := startNodes(t, 3)
	l := newLocker(t, servers, redlock.Options{MaxTTL: time.Second})
	_, err := l.TryLock(patience(t), "a", locker.WithTTL(time.Second+time.Millisecond))
	if err == nil || !strings.Contains(err.Error(), "ttl 1.001s is over the limit of 1s") {
		t.Error(err)
	}
}

// The subscriptions are being opened, to servers that do not answer. Close waits
// for all of them together.
func TestCloseDoesNotWaitForSubscriptionsToSilentServers(t *testing.T) {
	servers := startNodes(t, 5)
	mustLock(t, newLocker(t, servers, patient), "a")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var dials atomic.Int32
	var cut atomic.Bool
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if cut.Load() {
			dials.Add(1)
			addr = silent.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	var clients []redis.UniversalClient
	for _, s := range servers {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: dial}))
	}
	l := newLockerOn(t, clients, redlock.Options{DurableNodes: true})
	eventually(t, "a majority says in time that it is taken", func() bool {
		_, err := l.TryLock(patience(t), "a")
		return errors.Is(err, locker.ErrTaken)
	})
	cut.Store(true)
	ended := make(chan error, 1)
	go func() {
		_, err := l.Lock(patience(t), "a")
		ended <- err
	}()
	eventually(t, "the subscriptions", func() bool { return dials.Load() >= 5 })
	start := time.Now()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, locker.ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	if took := time.Since(start); took > 4*time.Second { // a second for each is five
		t.Errorf("Close and the end of the waiting took %v", took)
	}
}
