package etcd_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/internal/testserver"
)

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
