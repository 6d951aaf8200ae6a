package singlenode_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// grant is what a waiter reports.
type grant struct {
	who  int
	lock *locker.Lock
	err  error
}

// waitIn starts a waiter in every Locker and returns when the store has all of
// them in its queue, in this order.
func waitIn(t *testing.T, inspector locker.Inspector, name string, lockers ...*singlenode.Locker) <-chan grant {
	t.Helper()
	grants := make(chan grant, len(lockers))
	for i, l := range lockers {
		go func() {
			lock, err := l.Lock(patience(t), name)
			grants <- grant{i, lock, err}
		}()
		for {
			info, err := inspector.Inspect(patience(t), name)
			if err != nil {
				t.Fatal(err)
			}
			if info.Waiters == i+1 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return grants
}

func next(t *testing.T, grants <-chan grant) grant {
	t.Helper()
	select {
	case g := <-grants:
		if g.err != nil {
			t.Fatal(g.err)
		}
		return g
	case <-time.After(20 * time.Second):
		t.Fatal("nobody was served")
	}
	return grant{}
}

func TestLockerHasOneSubscriptionHoweverManyItWaitsFor(t *testing.T) {
	srv := testserver.Redis(t)
	holder, l := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
	const names = 20
	var held []*locker.Lock
	var waiting sync.WaitGroup
	for i := range names {
		name := fmt.Sprint("name", i)
		held = append(held, mustLock(t, holder, name))
		for range 10 {
			waiting.Go(func() {
				lock, err := l.Lock(patience(t), name)
				if err != nil {
					t.Error(err)
					return
				}
				mustUnlock(t, lock)
			})
		}
	}
	for i := range names {
		for {
			info, err := l.Inspect(patience(t), fmt.Sprint("name", i))
			if err != nil {
				t.Fatal(err)
			}
			if info.Waiters > 1 {
				t.Errorf("%d waiters of one process in the store", info.Waiters)
			}
			if info.Waiters == 1 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	if n := strings.Count(srv.Do("CLIENT", "LIST", "TYPE", "pubsub"), "id="); n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
	for _, lock := range held {
		mustUnlock(t, lock)
	}
	waiting.Wait()
}

// Waiters are dead without the server having noticed: their processes are
// stopped, their connections open. Here they are members of the queue that
// somebody listens for and nobody answers.
func TestStoppedWaitersAreSkippedWithinTheirClaimTime(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			srv := testserver.Redis(t)
			holder, l := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
			rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
			defer rdb.Close()
			stopped := rdb.Subscribe(patience(t), "lockstile:w:stopped")
			defer stopped.Close()
			if _, err := stopped.Receive(patience(t)); err != nil {
				t.Fatal(err)
			}
			held := mustLock(t, holder, "a", locker.WithTTL(time.Minute))
			for i := range n {
				srv.Do("ZADD", "lockstile:q:{a}", fmt.Sprint(i), fmt.Sprintf("one%d:stopped", i))
			}
			grants := waitBehind(t, srv, "a", n, l)
			mustUnlock(t, held)
			mustUnlock(t, next(t, grants).lock) // 20 s, where the lease has a minute
		})
	}
}

// waitBehind is waitIn for one Locker behind others that are in the queue.
func waitBehind(t *testing.T, srv *testserver.RedisServer, name string, others int, l *singlenode.Locker) <-chan grant {
	t.Helper()
	grants := make(chan grant, 1)
	go func() {
		lock, err := l.Lock(patience(t), name)
		grants <- grant{0, lock, err}
	}()
	for srv.Do("ZCARD", "lockstile:q:{"+name+"}") != fmt.Sprint(others+1) {
		time.Sleep(time.Millisecond)
	}
	return grants
}

// Connections of dead processes are gone: nobody listens on their channels.
func TestDeadWaitersAreSkippedAtOnce(t *testing.T) {
	srv := testserver.Redis(t)
	holder, l := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
	held := mustLock(t, holder, "a", locker.WithTTL(time.Hour))
	grants := waitBehind(t, srv, "a", 0, l)
	for i := range 1000 { // ahead of it
		srv.Do("ZADD", "lockstile:q:{a}", fmt.Sprint(i), fmt.Sprintf("dead%d:nobody", i))
	}
	mustUnlock(t, held)
	mustUnlock(t, next(t, grants).lock)
}

// Processes that waited were killed over the hours that the lock was held, and
// then the holder dies as well. Nobody releases the lock, so nobody has dropped
// them from the queue.
func TestDeadWaitersDoNotDelayWhoWaitsForADeadHolder(t *testing.T) {
	srv := testserver.Redis(t)
	holder, l := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
	mustLock(t, holder, "a", locker.WithTTL(time.Second), locker.WithoutRenewal())
	for i := range 1000 {
		srv.Do("ZADD", "lockstile:q:{a}", fmt.Sprint(i), fmt.Sprintf("dead%d:nobody", i))
	}
	grants := make(chan grant, 1)
	go func() {
		lock, err := l.Lock(patience(t), "a")
		grants <- grant{0, lock, err}
	}()
	mustUnlock(t, next(t, grants).lock) // 20 s, and not half a second for each of the dead
}

// The server drops the subscriptions while processes wait: what it publishes in
// between is lost. Everybody looks again, and keeps its place.
func TestWaitersKeepTheirOrderWhenSubscriptionsBreak(t *testing.T) {
	srv := testserver.Redis(t)
	holder := newLocker(t, srv.Addr(), singlenode.Options{})
	var lockers []*singlenode.Locker
	for range 4 {
		lockers = append(lockers, newLocker(t, srv.Addr(), singlenode.Options{}))
	}
	held := mustLock(t, holder, "a", locker.WithTTL(time.Hour))
	grants := waitIn(t, holder, "a", lockers...)
	srv.Do("CLIENT", "KILL", "TYPE", "pubsub")
	for strings.Count(srv.Do("CLIENT", "LIST", "TYPE", "pubsub"), "id=") != len(lockers) {
		time.Sleep(time.Millisecond)
	}
	mustUnlock(t, held)
	for want := range lockers {
		g := next(t, grants)
		if g.who != want {
			t.Errorf("waiter %d was served, it was the turn of %d", g.who, want)
		}
		mustUnlock(t, g.lock)
	}
}

// The client subscribes again by itself. A second subscription in place of that one
// would leave a gap, in which a waiter whose turn comes is taken for dead.
func TestSubscriptionThatBreaksIsReplacedOnce(t *testing.T) {
	srv := testserver.Redis(t)
	holder := newLocker(t, srv.Addr(), singlenode.Options{})
	var dialled atomic.Int32
	l := newLockerOn(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}), singlenode.Options{})
	held := mustLock(t, holder, "a", locker.WithTTL(time.Hour))
	grants := waitIn(t, holder, "a", l)
	before := dialled.Load()
	srv.Do("CLIENT", "KILL", "TYPE", "pubsub")
	asked := calls(t, srv, "evalsha")
	until(t, "the waiter to look again", func() bool { return calls(t, srv, "evalsha") > asked })
	if n := dialled.Load() - before; n != 1 {
		t.Errorf("%d connections took the place of the one that broke", n)
	}
	mustUnlock(t, held)
	mustUnlock(t, next(t, grants).lock)
}

// The connection for words breaks and cannot be opened again (the name of the server is not found, a
// firewall refuses it), while requests go on over others. The waiter looks by itself, and does not
// sleep beside a free lock for the rest of the lease.
func TestWaiterLooksWhileItsSubscriptionCannotBeMadeAgain(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	for _, why := range []error{&net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true}, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, io.EOF} {
		t.Run(why.Error(), func(t *testing.T) {
			holder := newLocker(t, srv.Addr(), singlenode.Options{})
			var gone atomic.Bool
			l := newLockerOn(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if gone.Load() {
					return nil, why
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}}), singlenode.Options{})
			held := mustLock(t, holder, t.Name(), locker.WithTTL(time.Hour))
			grants := waitIn(t, holder, t.Name(), l)
			gone.Store(true)
			srv.Do("CLIENT", "KILL", "TYPE", "pubsub")
			mustUnlock(t, held)
			mustUnlock(t, next(t, grants).lock)
		})
	}
}

// BELIEVE_WORD of proof/spec/queue.pml: a word comes late, and twice. It only makes its waiter ask.
func TestWordIsNoGrant(t *testing.T) {
	srv := testserver.Redis(t)
	holder, l := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
	held := mustLock(t, holder, "a", locker.WithTTL(time.Hour))
	grants := waitIn(t, holder, "a", l)
	value, id, _ := strings.Cut(srv.Do("ZRANGE", "lockstile:q:{a}", "0", "0"), ":")
	for range 2 {
		asked := calls(t, srv, "evalsha")
		if n := srv.Do("PUBLISH", "lockstile:w:"+id, value); n != "1" {
			t.Fatalf("%s have heard the word", n)
		}
		until(t, "the waiter to ask, or to return", func() bool { return calls(t, srv, "evalsha") > asked || len(grants) > 0 })
	}
	select {
	case g := <-grants:
		t.Fatalf("the waiter has returned while somebody else held the lock: %v", g.err)
	default:
	}
	mustUnlock(t, held)
	g := next(t, grants)
	if g.lock.Token() <= held.Token() {
		t.Errorf("token %d after %d", g.lock.Token(), held.Token())
	}
	mustUnlock(t, g.lock)
}

// The word of the release is lost: as if the connection had broken without a trace.
// The waiter gets the lock when the lease that it knew of would have ended.
func TestLostWordCostsAtMostTheRestOfTheLease(t *testing.T) {
	srv := testserver.Redis(t)
	holder, l := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
	mustLock(t, holder, "a", locker.WithTTL(2*time.Second), locker.WithoutRenewal())
	grants := waitIn(t, holder, "a", l)
	srv.Do("DEL", "a", "lockstile:q:{a}")
	mustUnlock(t, next(t, grants).lock)
}

// A client of another library tells nobody that it has given the lock back.
func TestLockThatAStrangerHasGivenBackDoesNotWaitForTheEndOfItsLease(t *testing.T) {
	srv := testserver.Redis(t)
	inspector := newLocker(t, srv.Addr(), singlenode.Options{})
	mustUnlock(t, mustLock(t, inspector, "a")) // the name has had holders of ours
	for _, lease := range [][]string{{"PX", "3600000"}, nil} {
		if got := srv.Do(append([]string{"SET", "a", "theirs", "NX"}, lease...)...); got != "OK" {
			t.Fatal(got)
		}
		grants := waitIn(t, inspector, "a", newLocker(t, srv.Addr(), singlenode.Options{}))
		srv.Do("DEL", "a")
		mustUnlock(t, next(t, grants).lock)
	}
}

// However many wait, a hand-over costs the server the same.
func TestCommandsPerAcquisitionDoNotGrowWithTheWaiters(t *testing.T) {
	srv := testserver.Redis(t)
	cost := func(processes int) int {
		lockers := make([]*singlenode.Locker, processes)
		for i := range lockers {
			lockers[i] = newLocker(t, srv.Addr(), singlenode.Options{})
		}
		held := mustLock(t, lockers[0], "a", locker.WithTTL(time.Hour))
		grants := waitIn(t, lockers[0], "a", lockers[1:]...)
		srv.Do("CONFIG", "RESETSTAT")
		mustUnlock(t, held)
		for range processes - 1 {
			mustUnlock(t, next(t, grants).lock)
		}
		return (calls(t, srv, "evalsha") + calls(t, srv, "eval")) * 100 / (processes - 1)
	}
	few, many := cost(5), cost(41)
	if many > few+few/10 {
		t.Errorf("%d requests for 100 acquisitions with 40 waiters, %d with 4", many, few)
	}
}
