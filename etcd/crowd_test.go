package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
)

// inLine counts the goroutines that wait in a Locker's own line.
func inLine() int {
	var stacks bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2) // a Buffer takes everything
	return bytes.Count(stacks.Bytes(), []byte("internal/line.(*Lines[...]).Enter("))
}

// TestThousandWaitersOfOneProcess sees that they cost the process no goroutines
// but their own and the server one waiter, and that they are served in order.
func TestThousandWaitersOfOneProcess(t *testing.T) {
	const n = 1000
	srv := testserver.Etcd(t, 1).Members[0]
	proxy := conformance.NewProxy(t, srv.Addr())
	l := newLocker(t, proxy.Addr())
	other := newLocker(t, srv.Addr())
	held := mustLock(t, other, "x")
	first := make(chan struct{})
	go func() { mustUnlock(t, mustLock(t, l, "x")); close(first) }()
	until(t, "one waits in the store", func() bool { return waiters(t, other, "x") == 1 })
	before := runtime.NumGoroutine()
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		served []int
		tokens []fencing.Token
	)
	for i := range n {
		wg.Go(func() {
			lock, err := l.Lock(patience(t), "x")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			served, tokens = append(served, i), append(tokens, lock.Token())
			mu.Unlock()
			mustUnlock(t, lock)
		})
		if i%100 == 0 { // their order is known only if each has arrived before the next
			until(t, "it waits", func() bool { return inLine() >= i+1 })
		}
	}
	until(t, "all wait", func() bool { return inLine() >= n })
	if more := runtime.NumGoroutine() - before - n; more > 20 {
		t.Errorf("%d goroutines besides those of %d waiters", more, n)
	}
	if got := proxy.Conns(); got > 2 {
		t.Errorf("%d connections", got)
	}
	if got := waiters(t, other, "x"); got != 1 {
		t.Errorf("%d of one process wait in the store", got)
	}
	txns := srv.Metric(`grpc_server_handled_total{grpc_code="OK",grpc_method="Txn"`)
	mustUnlock(t, held)
	<-first
	wg.Wait()
	txns = srv.Metric(`grpc_server_handled_total{grpc_code="OK",grpc_method="Txn"`) - txns
	if txns > n+10 {
		t.Errorf("%v transactions for %d hand-overs within the process: one is enough for each", txns, n)
	}
	if !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != n {
		t.Error("tokens do not increase strictly")
	}
	for i := 0; i+100 < n; i += 100 {
		if slices.Index(served, i) > slices.Index(served, i+100) {
			t.Errorf("waiter %d was served after waiter %d", i, i+100)
		}
	}
}

// The order of processes in the queue is the order of their keys.
func TestProcessesAreServedInOrderOfArrival(t *testing.T) {
	endpoints := testserver.Etcd(t, 1).Endpoints()
	holder := newLocker(t, endpoints...)
	held := mustLock(t, holder, "x")
	served := make(chan int, 8)
	var wg sync.WaitGroup
	last := held.Token()
	for i := range 8 {
		l := newLocker(t, endpoints...)
		wg.Go(func() {
			lock := mustLock(t, l, "x")
			if lock.Token() <= last {
				t.Errorf("token %d after %d", lock.Token(), last)
			}
			last = lock.Token()
			served <- i
			mustUnlock(t, lock)
		})
		until(t, "it waits", func() bool { return waiters(t, holder, "x") == i+1 })
	}
	mustUnlock(t, held)
	wg.Wait()
	for i := range 8 {
		if got := <-served; got != i {
			t.Fatalf("process %d was served in place %d", got, i)
		}
	}
}

// A goroutine in line behind the holder would get a greater token by a local
// hand-over than a process has that came before it, and that is served next.
func TestLockIsNotHandedOnPastAnotherProcess(t *testing.T) {
	endpoints := testserver.Etcd(t, 1).Endpoints()
	a, b := newLocker(t, endpoints...), newLocker(t, endpoints...)
	held := mustLock(t, a, "x")
	order := make(chan fencing.Token, 2)
	take := func(l *etcd.Locker) {
		lock := mustLock(t, l, "x")
		order <- lock.Token()
		mustUnlock(t, lock)
	}
	var wg sync.WaitGroup
	wg.Go(func() { take(b) })
	until(t, "b waits", func() bool { return waiters(t, a, "x") == 1 })
	wg.Go(func() { take(a) })
	until(t, "a waits", func() bool { return inLine() >= 1 })
	mustUnlock(t, held)
	wg.Wait()
	if first, second := <-order, <-order; second <= first {
		t.Errorf("token %d was granted after token %d", second, first)
	}
}

func TestHandOverWithinTheProcessIsOneRoundTripAndANewToken(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	l := newLocker(t, srv.Addr())
	held := mustLock(t, l, "x")
	got := lockLater(t, l, "x", locker.WithHolder("the heir"))
	until(t, "it waits", func() bool { return inLine() >= 1 })
	condition, err := l.Held(held)
	if err != nil {
		t.Fatal(err)
	}
	calls := srv.Metric("grpc_server_handled_total")
	mustUnlock(t, held)
	lock := received(t, got)
	if calls = srv.Metric("grpc_server_handled_total") - calls; calls != 1 {
		t.Errorf("a hand-over took %v calls", calls)
	}
	if lock.Token() <= held.Token() {
		t.Errorf("token %d after %d", lock.Token(), held.Token())
	}
	resp, err := newClient(t, srv.Addr()).Txn(patience(t)).If(condition).Then(clientv3.OpPut("data", "v")).Commit()
	if err != nil || resp.Succeeded {
		t.Errorf("a write of the last holder, whose key the heir has now: %v, %v", resp, err)
	}
	info, err := l.Inspect(patience(t), "x")
	if err != nil || info.Token != lock.Token() || info.Holder != "the heir" {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	mustUnlock(t, lock)
}

func TestGoroutinesWithDifferentTTLsExcludeEachOther(t *testing.T) {
	l := newLocker(t, testserver.Etcd(t, 1).Endpoints()...)
	var inside, most, now int
	var mu sync.Mutex
	count := func(d int) {
		mu.Lock()
		defer mu.Unlock()
		now += d
		most = max(most, now)
		inside++
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			lock := mustLock(t, l, "x", locker.WithTTL(time.Duration(10+i%3)*time.Second))
			count(1)
			count(-1)
			mustUnlock(t, lock)
		})
	}
	wg.Wait()
	if most != 1 || inside != 24 {
		t.Errorf("%d holders at once, %d steps", most, inside)
	}
}

func TestWaitEndsWithItsContextAndLeavesNothing(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	a, b := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	held := mustLock(t, a, "x")
	for i := range 3 {
		ctx, cancel := context.WithCancelCause(context.Background())
		reason := fmt.Errorf("reason %d", i)
		result := waitBehind(t, ctx, a, b)
		cancel(reason)
		if err := <-result; !errors.Is(err, locker.ErrTaken) || !errors.Is(err, reason) {
			t.Errorf("a wait that was cancelled: %v", err)
		}
		if got := waiters(t, a, "x"); got != 0 {
			t.Errorf("%d waiters after the only one has gone", got)
		}
	}
	mustUnlock(t, held)
}
