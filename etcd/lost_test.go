package etcd_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

const short = 2 * time.Second // the servers' limit

// lostFor waits for the loss of a lock and requires its reason.
func lostFor(t *testing.T, lock *locker.Lock, reasons ...locker.Reason) {
	t.Helper()
	select {
	case <-lock.Lost():
	case <-time.After(time.Minute):
		t.Fatal("the loss is not told")
	}
	var lost *locker.LostError
	if !errors.As(lock.Err(), &lost) {
		t.Fatalf("after a loss: %v", lock.Err())
	}
	for _, reason := range reasons {
		if lost.Reason == reason {
			return
		}
	}
	t.Errorf("lost because %v, want one of %v", lost.Reason, reasons)
}

// leaseOf reads a lock's lease from its key.
func leaseOf(t *testing.T, client *clientv3.Client, folder string) clientv3.LeaseID {
	t.Helper()
	found := keys(t, client, folder)
	if len(found) == 0 {
		t.Fatalf("nothing below %q", folder)
	}
	lease, _, _ := strings.Cut(strings.TrimPrefix(found[0], folder), "-")
	id, err := strconv.ParseInt(lease, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return clientv3.LeaseID(id)
}

func TestAllLocksOfASessionAreLostWhenItsLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	renewed := mustLock(t, l, "x", locker.WithTTL(short))
	still := mustLock(t, l, "y", locker.WithTTL(short), locker.WithoutRenewal())
	apart := mustLock(t, l, "z", locker.WithTTL(10*short))
	if _, err := client.Revoke(patience(t), leaseOf(t, client, "x/")); err != nil {
		t.Fatal(err)
	}
	lostFor(t, renewed, locker.ReasonSessionEnded)
	lostFor(t, still, locker.ReasonSessionEnded, locker.ReasonExpired) // it may end by itself first
	if err := apart.Err(); err != nil {
		t.Errorf("a lock of another TTL: %v", err)
	}
	mustUnlock(t, apart)
	again := mustLock(t, l, "x", locker.WithTTL(short))
	if again.Token() <= renewed.Token() {
		t.Errorf("token %d after %d", again.Token(), renewed.Token())
	}
	mustUnlock(t, again)
}

func TestNewLocksGetANewSessionWhenTheLeaseIsGoneUnnoticed(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	held := mustLock(t, l, "x", locker.WithTTL(time.Hour)) // no renewal notices in this test
	if _, err := client.Revoke(patience(t), leaseOf(t, client, "x/")); err != nil {
		t.Fatal(err)
	}
	lock, err := l.TryLock(patience(t), "y", locker.WithTTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	lostFor(t, held, locker.ReasonSessionEnded)
	mustUnlock(t, lock)
	mustUnlock(t, mustLock(t, l, "x", locker.WithTTL(time.Hour)))
}

func TestWaiterWhoseSessionDiedTakesANewPlace(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	a, b := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	warm := mustLock(t, b, "warm", locker.WithTTL(short))
	session := leaseOf(t, client, "warm/")
	held := mustLock(t, a, "x")
	got := lockLater(t, b, "x", locker.WithTTL(short))
	until(t, "b waits", func() bool { return waiters(t, a, "x") == 1 })
	if _, err := client.Revoke(patience(t), session); err != nil {
		t.Fatal(err)
	}
	lostFor(t, warm, locker.ReasonSessionEnded)
	until(t, "b waits again", func() bool { return waiters(t, a, "x") == 1 })
	mustUnlock(t, held)
	mustUnlock(t, received(t, got))
}

func TestWaiterWhoseKeyWasDeletedTakesANewPlace(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	a, b := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	held := mustLock(t, a, "x")
	holder := keys(t, client, "x/")[0]
	got := lockLater(t, b, "x", locker.WithTTL(short))
	until(t, "b waits", func() bool { return waiters(t, a, "x") == 1 })
	for _, key := range keys(t, client, "x/") {
		if key != holder {
			if _, err := client.Delete(patience(t), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "b waits again", func() bool { return waiters(t, a, "x") == 1 })
	mustUnlock(t, held)
	mustUnlock(t, received(t, got))
}

func TestLockThatIsNotRenewedLeavesNoKeyBehind(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	beside := mustLock(t, l, "y", locker.WithTTL(short)) // keeps their session alive
	lock := mustLock(t, l, "x", locker.WithTTL(short), locker.WithoutRenewal())
	lostFor(t, lock, locker.ReasonExpired)
	until(t, "the key is gone", func() bool { return len(keys(t, client, "x/")) == 0 })
	mustUnlock(t, beside)
}

func TestTTLThatEtcdWouldChangeIsRefused(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	for ttl, want := range map[time.Duration]string{
		time.Second:             "under the limit of the servers, 2s",
		2500 * time.Millisecond: "whole number of seconds",
		100 * time.Millisecond:  "whole number of seconds",
	} {
		_, err := l.Lock(patience(t), "x", locker.WithTTL(ttl))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("ttl %v: %v", ttl, err)
		}
	}
	leases, err := client.Leases(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(leases.Leases) != 0 {
		t.Errorf("leases left behind: %v", leases.Leases)
	}
}

func TestBrokenLockGoesToTheNextAndItsHolderFindsOut(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	a, b := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	lock := mustLock(t, a, "x", locker.WithTTL(short))
	held, err := a.Held(lock)
	if err != nil {
		t.Fatal(err)
	}
	write := func() bool {
		resp, err := client.Txn(patience(t)).If(held).Then(clientv3.OpPut("data", "v")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Succeeded
	}
	if !write() {
		t.Error("the holder's write is refused")
	}
	if broken, err := b.Break(patience(t), "x"); err != nil || !broken {
		t.Errorf("Break: %v, %v", broken, err)
	}
	if write() {
		t.Error("a write under a broken lock succeeded")
	}
	next := mustLock(t, b, "x")
	if write() {
		t.Error("a write of the last holder succeeded")
	}
	lostFor(t, lock, locker.ReasonTakenOver)
	if _, err := a.Held(lock); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Held of a lost lock: %v", err)
	}
	mustUnlock(t, next)
}

// The end of a session by the local clock says nothing about the store: what the
// attempt has there stays until the servers end the lease.
//
//	b waits; the server hangs; its session is over, and b gives up
func TestWaiterWhosePlaceOutlivesItsSessionIsToldSo(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, 1).Members[0]
	a, b := newLocker(t, srv.Addr()), newLocker(t, srv.Addr())
	held := mustLock(t, a, "x", locker.WithTTL(2*short))
	beside := mustLock(t, b, "y", locker.WithTTL(short)) // on the waiter's session
	ctx, cancel := context.WithCancel(context.Background())
	result := waitBehind(t, ctx, a, b, locker.WithTTL(short))
	srv.Pause()
	defer srv.Resume()
	lostFor(t, beside, locker.ReasonUnreachable, locker.ReasonExpired)
	cancel()
	if err := <-result; !errors.Is(err, locker.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("with its place still there: %v", err)
	}
	lostFor(t, held, locker.ReasonUnreachable, locker.ReasonExpired)
}
