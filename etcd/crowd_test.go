package etcd_test

import (
	"runtime"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
)

// TestThousandWaitersOfOneProcess sees that they cost the process no goroutines but
// their own, and the server one waiter and few requests.
func TestThousandWaitersOfOneProcess(t *testing.T) {
	const n = 1000
	srv := testserver.Etcd(t, 1).Members[0]
	proxy := conformance.NewProxy(t, srv.Addr())
	l := newLocker(t, proxy.Addr())
	other := newLocker(t, srv.Addr())
	held := mustLock(t, other, "x")
	first := lockLater(t, l, "x")
	until(t, "one waits in the store", func() bool { return waiters(t, other, "x") == 1 })
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { mustUnlock(t, mustLock(t, l, "x")) })
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
	const txn = `grpc_server_handled_total{grpc_code="OK",grpc_method="Txn"`
	txns := srv.Metric(txn)
	mustUnlock(t, held)
	mustUnlock(t, received(t, first))
	wg.Wait()
	if txns = srv.Metric(txn) - txns; txns > n/10 {
		t.Errorf("%v transactions for %d turns within the process", txns, n)
	}
}

// Nobody else's lock may meet a condition that was handed out for one.
//
//	a goroutine waits in line behind a holder that has asked for its condition
func TestLockWhoseConditionIsKnownIsNotPassedOn(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLocker(t, client.Endpoints()...)
	held := mustLock(t, l, "x")
	condition, err := l.Held(held)
	if err != nil {
		t.Fatal(err)
	}
	write := func() bool {
		t.Helper()
		resp, err := client.Txn(patience(t)).If(condition).Then(clientv3.OpPut("data", "v")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Succeeded
	}
	if !write() {
		t.Error("the holder's write is refused")
	}
	next := lockLater(t, l, "x")
	until(t, "it waits", func() bool { return inLine() >= 1 })
	mustUnlock(t, held)
	lock := received(t, next)
	if write() {
		t.Error("a write of the last holder succeeded")
	}
	if lock.Token()-held.Token() < 1<<10 {
		t.Errorf("token %d is of the same grant as %d", lock.Token(), held.Token())
	}
	if _, err := newLocker(t, client.Endpoints()...).Held(lock); err == nil {
		t.Error("another Locker knows the condition")
	}
	mustUnlock(t, lock)
}
