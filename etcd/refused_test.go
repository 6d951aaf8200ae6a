package etcd_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

// alarm raises or ends the servers' alarm that they have no space left: they
// then refuse whatever writes, and still delete.
func alarm(t *testing.T, client *clientv3.Client, action pb.AlarmRequest_AlarmAction) {
	t.Helper()
	status, err := client.Status(patience(t), client.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(patience(t), &pb.AlarmRequest{
		Action: action, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A request that the servers refuse has left nothing behind, and needs no
// clean-up that would be refused as well, for as long as the alarm lasts.
//
//	lock once, for the session; the alarm is raised; a hundred attempts: what do
//	they say, and what goes on behind their back?
func TestRefusedAttemptsHaveAKnownOutcomeAndLeaveNothingRunning(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	mustUnlock(t, mustLock(t, l, "x"))
	alarm(t, client, pb.AlarmRequest_ACTIVATE)
	before := runtime.NumGoroutine()
	kinds := [][]locker.Option{nil, {locker.WithShared()}, {locker.WithSlots(2)}}
	for i := range 100 {
		_, err := l.TryLock(patience(t), "x", kinds[i%len(kinds)]...)
		if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrOutcomeUnknown) || !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatalf("TryLock without space: %v", err)
		}
	}
	if more := runtime.NumGoroutine() - before; more > 20 {
		t.Errorf("%d goroutines after 100 attempts", more)
	}
	alarm(t, client, pb.AlarmRequest_DEACTIVATE)
	mustUnlock(t, mustLock(t, l, "x"))
}

// Servers without space still delete, so a lock can be given back.
func TestLockIsGivenBackWithoutSpace(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	held := mustLock(t, l, "x")
	alarm(t, client, pb.AlarmRequest_ACTIVATE)
	if err := held.Unlock(patience(t)); err != nil {
		t.Errorf("Unlock without space: %v", err)
	}
	if got := keys(t, client, "x/"); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// login makes user with a role that may do everything below prefix, and returns
// a client of his and one of root's.
func login(t *testing.T, endpoints []string, prefix string) (user, root *clientv3.Client) {
	t.Helper()
	ctx, plain := patience(t), newClient(t, endpoints...)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(plain.RoleAdd(ctx, "root"))
	do(plain.UserAdd(ctx, "root", "secret-root"))
	do(plain.UserGrantRole(ctx, "root", "root"))
	do(plain.RoleAdd(ctx, "user"))
	do(plain.RoleGrantPermission(ctx, "user", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)))
	do(plain.UserAdd(ctx, "user", "secret-user"))
	do(plain.UserGrantRole(ctx, "user", "user"))
	do(plain.AuthEnable(ctx))
	as := func(name string) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: endpoints, DialTimeout: 30 * time.Second,
			Username: name, Password: "secret-" + name,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	return as("user"), as("root")
}

// What a request compares and reads lies below the prefix, for all kinds of locks.
func TestUserNeedsPermissionsBelowThePrefixAlone(t *testing.T) {
	t.Parallel()
	user, _ := login(t, testserver.Etcd(t, 1).Endpoints(), "locks/")
	l := newLockerOn(t, user, etcd.Options{Prefix: "locks/"})
	for kind, opts := range map[string][]locker.Option{"exclusive": nil, "shared": {locker.WithShared()}, "slots": {locker.WithSlots(60)}} {
		lock, err := l.Lock(patience(t), "x", opts...)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if err := lock.Renew(patience(t)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		mustUnlock(t, lock)
	}
}

// Whoever may read and not delete hears why nothing was broken.
func TestBreakSaysThatItIsNotPermitted(t *testing.T) {
	t.Parallel()
	user, root := login(t, testserver.Etcd(t, 1).Endpoints(), "locks/")
	end := clientv3.GetPrefixRangeEnd("locks/")
	held := mustLock(t, newLockerOn(t, root, etcd.Options{Prefix: "locks/"}), "x")
	if _, err := root.RoleGrantPermission(patience(t), "user", "locks/", end, clientv3.PermissionType(clientv3.PermRead)); err != nil {
		t.Fatal(err)
	}
	broken, err := newLockerOn(t, user, etcd.Options{Prefix: "locks/"}).Break(patience(t), "x")
	if broken || !errors.Is(err, rpctypes.ErrPermissionDenied) || !errors.Is(err, locker.ErrRefused) {
		t.Errorf("Break: %v, %v", broken, err)
	}
	mustUnlock(t, held)
}

// A waiter that may not look any more must not wait for ever.
//
//	b waits in the queue with Background; its permission is taken away; its
//	session lasts for an hour
func TestWaiterWhosePermissionIsTakenAwayIsTold(t *testing.T) {
	t.Parallel()
	user, root := login(t, testserver.Etcd(t, 1).Endpoints(), "locks/")
	a, b := newLockerOn(t, root, etcd.Options{Prefix: "locks/"}), newLockerOn(t, user, etcd.Options{Prefix: "locks/"})
	held := mustLock(t, a, "x", locker.WithTTL(time.Hour))
	result := waitBehind(t, context.Background(), a, b, locker.WithTTL(time.Hour))
	if _, err := root.RoleRevokePermission(patience(t), "user", "locks/", clientv3.GetPrefixRangeEnd("locks/")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-result:
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the waiter: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it waits for ever")
		_ = b.Close()
	}
	mustUnlock(t, held)
}

// Nor must a waiter whose client is closed.
//
//	b waits in the queue with Background, on a session of an hour; the owner of
//	its client closes it
func TestWaiterWhoseClientIsClosedIsTold(t *testing.T) {
	t.Parallel()
	endpoints := testserver.Etcd(t, 1).Endpoints()
	client := newClient(t, endpoints...)
	a, b := newLocker(t, endpoints...), newLockerOn(t, client, etcd.Options{})
	held := mustLock(t, a, "x", locker.WithTTL(time.Hour))
	result := waitBehind(t, context.Background(), a, b, locker.WithTTL(time.Hour))
	_ = client.Close()
	select {
	case err := <-result:
		if !errors.Is(err, locker.ErrUnavailable) && !errors.Is(err, locker.ErrOutcomeUnknown) {
			t.Errorf("the waiter: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it waits for ever")
		_ = b.Close()
	}
	mustUnlock(t, held)
}
