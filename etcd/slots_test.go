package etcd_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

// hold takes the slots from one number to another.
func hold(t *testing.T, l *etcd.Locker, n, from, upTo int) []*locker.Lock {
	t.Helper()
	var held []*locker.Lock
	for k := from; k < upTo; k++ {
		lock := mustLock(t, l, "x", locker.WithSlots(n))
		if lock.Slot() != k {
			t.Fatalf("slot %d was granted, want %d", lock.Slot(), k)
		}
		held = append(held, lock)
	}
	return held
}

// One request tries so many slots; if those are taken it reads which others are.
func TestSlotTakesOneRequestAndIsGivenBackInOne(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	l, other := newLocker(t, srv.Addr()), newLocker(t, srv.Addr())
	mustUnlock(t, mustLock(t, l, "warm"))
	const n = 60
	held := hold(t, other, n, 0, 3)
	cost := func() float64 {
		t.Helper()
		before, want := requests(srv), len(held)
		for _, lock := range hold(t, l, n, want, want+1) {
			mustUnlock(t, lock)
		}
		lock, err := l.TryLock(patience(t), "x", locker.WithSlots(n))
		if err != nil || lock.Slot() != want {
			t.Fatalf("TryLock: %v, want slot %d", err, want)
		}
		mustUnlock(t, lock)
		return requests(srv) - before
	}
	if got := cost(); got != 4 {
		t.Errorf("%v requests for two locks of the fourth slot, want 4", got)
	}
	held = append(held, hold(t, other, n, 3, 55)...)
	if got := cost(); got != 6 {
		t.Errorf("%v requests for two locks of the 56th slot, want 6", got)
	}
	held = append(held, hold(t, other, n, 55, n)...)
	if lock, err := l.TryLock(patience(t), "x", locker.WithSlots(n)); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock where all slots are taken: %v, %v", lock, err)
	}
	got := lockLater(t, l, "x", locker.WithSlots(n))
	until(t, "it waits", func() bool { return waiters(t, other, "x") == 1 })
	mustUnlock(t, held[57])
	if lock := received(t, got); lock.Slot() != 57 {
		t.Errorf("slot 57 came free, and slot %d was granted", lock.Slot())
	}
}

// settled returns how many requests there were when there are no more: who waits looks once
// when its watch has begun.
func settled(srv *testserver.EtcdServer) float64 {
	n := requests(srv)
	for now := -n; now != n; time.Sleep(200 * time.Millisecond) {
		n, now = now, requests(srv)
	}
	return n
}

// A slot that comes free is for the first waiter. The second one then looks whether there is
// another, before and after it begins to watch the slots, and the others sleep on.
func TestSlotThatComesFreeWakesTheFirstWaiterAlone(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	l := newLocker(t, srv.Addr())
	held := hold(t, l, 2, 0, 2)
	var got []<-chan *locker.Lock
	for i := range 4 {
		got = append(got, lockLater(t, newLocker(t, srv.Addr()), "x", locker.WithSlots(2)))
		until(t, "it waits", func() bool { return waiters(t, l, "x") == i+1 })
	}
	before := settled(srv)
	mustUnlock(t, held[1])
	lock := received(t, got[0])
	if n := settled(srv) - before; n > 4 {
		t.Errorf("%v requests for a slot that one gave to another of four waiters", n)
	}
	mustUnlock(t, held[0])
	mustUnlock(t, received(t, got[1]))
	mustUnlock(t, received(t, got[2]))
	mustUnlock(t, lock)
	mustUnlock(t, received(t, got[3]))
}

// A Mutex that waits looks at no key that is put after its own. So no slot may be taken
// meanwhile, also not by one who waited before it.
func TestMutexOfEtcdsClientExcludesSlotsAndTheyIt(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	a, b := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	held := hold(t, a, 1, 0, 1)[0]
	result := waitBehind(t, patience(t), a, b, locker.WithSlots(1))
	locked, mutex := make(chan error, 1), newMutex(t, client, "x")
	go func() { locked <- mutex.Lock(patience(t)) }()
	until(t, "the Mutex waits, too", func() bool { return waiters(t, a, "x") == 2 })
	if _, err := a.TryLock(patience(t), "x", locker.WithSlots(1)); !errors.Is(err, locker.ErrMismatch) {
		t.Errorf("TryLock of a slot while a Mutex waits: %v", err)
	}
	mustUnlock(t, held)
	if err := <-result; !errors.Is(err, locker.ErrMismatch) {
		t.Errorf("one who waited for a slot before a Mutex came: %v", err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if _, err := a.Lock(patience(t), "x", locker.WithSlots(1)); !errors.Is(err, locker.ErrMismatch) {
		t.Errorf("a slot while a Mutex holds the lock: %v", err)
	}
	if err := mutex.Unlock(patience(t)); err != nil {
		t.Fatal(err)
	}
	for _, lock := range hold(t, b, 1, 0, 1) {
		mustUnlock(t, lock)
	}
}

// Keys for another number of slots may be before or behind those for this one, and readers'
// keys are behind both. It is another process that asks: this one knows what it has.
func TestSlotIsRefusedBesideAnythingElse(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	a, b := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	for what, opts := range map[string][]locker.Option{
		"exclusive": nil, "shared": {locker.WithShared()}, "3 slots": {locker.WithSlots(3)}, "30 slots": {locker.WithSlots(30)}, "300 slots": {locker.WithSlots(300)},
	} {
		held := mustLock(t, a, "x", opts...)
		for _, n := range []int{2, 29, 31, 1000} {
			lock, err := b.TryLock(patience(t), "x", locker.WithSlots(n))
			if !errors.Is(err, locker.ErrMismatch) || !strings.Contains(err.Error(), what) {
				t.Errorf("one of %d slots, where it is held as %s: %v, %v", n, what, lock, err)
			}
		}
		mustUnlock(t, held)
	}
}

// A slot's condition is that one holder still has it: not another slot's, nor a later one's.
func TestConditionOfASlotIsItsHoldersAlone(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	held := hold(t, l, 2, 0, 2)
	condition, err := l.Held(held[1])
	if err != nil {
		t.Fatal(err)
	}
	met := func() bool {
		t.Helper()
		resp, err := client.Txn(patience(t)).If(condition).Then(clientv3.OpPut("data of slot 1", "v")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Succeeded
	}
	if !met() {
		t.Error("the holder's write is refused")
	}
	mustUnlock(t, held[1])
	if met() {
		t.Error("a write succeeded for a slot that nobody has")
	}
	next := hold(t, l, 2, 1, 2)
	if met() {
		t.Error("a write of the last holder succeeded")
	}
	mustUnlock(t, next[0])
	mustUnlock(t, held[0])
}

// Keys of others come before and behind those of a pool, in the order of keys.
func TestSlotIsNotGrantedBesideAnotherKindOrNumber(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	a, b := newLocker(t, srv.Addr()), newLocker(t, srv.Addr())
	for _, held := range []locker.Option{locker.WithHolder("exclusive"), locker.WithShared(), locker.WithSlots(3), locker.WithSlots(1)} {
		lock := mustLock(t, a, "x", held)
		for range 2 { // also after one that was refused
			if got, err := b.TryLock(patience(t), "x", locker.WithSlots(2)); !errors.Is(err, locker.ErrMismatch) {
				t.Errorf("%v, %v, want ErrMismatch", got, err)
			}
		}
		mustUnlock(t, lock)
	}
	mustUnlock(t, mustLock(t, b, "x", locker.WithSlots(2)))
}
