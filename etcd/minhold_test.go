package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

// lockFor locks x with a minimum hold. The function requires that this is over.
func lockFor(t *testing.T, l locker.Locker, hold time.Duration, opts ...locker.Option) (lock *locker.Lock, over func(who string)) {
	t.Helper()
	began := time.Now()
	return mustLock(t, l, "x", append(opts, locker.WithMinHold(hold))...), func(who string) {
		t.Helper()
		if after := time.Since(began); after < hold {
			t.Errorf("%s has the lock after %v, and its minimum hold is %v", who, after, hold)
		}
	}
}

func TestMutexOfEtcdsClientWaitsForTheEndOfAMinimumHold(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	theirs := newMutex(t, client, "x")
	lock, over := lockFor(t, newLockerOn(t, client, etcd.Options{}), 2*short)
	mustUnlock(t, lock)
	if err := theirs.TryLock(patience(t)); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("a Mutex's TryLock: %v", err)
	}
	if err := theirs.Lock(patience(t)); err != nil {
		t.Fatal(err)
	}
	over("a Mutex")
}

// The turn is over, though the key is there.
func TestConditionOfALockIsNotMetWhileItIsKept(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	lock, _ := lockFor(t, l, time.Hour)
	held, err := l.Held(lock)
	if err != nil {
		t.Fatal(err)
	}
	for _, unlocked := range []bool{false, true} {
		if unlocked {
			mustUnlock(t, lock)
		}
		resp, err := client.Txn(patience(t)).If(held).Then(clientv3.OpPut("data", "v")).Commit()
		if err != nil || resp.Succeeded == unlocked {
			t.Errorf("unlocked: %v; its write: %v, %v", unlocked, resp, err)
		}
	}
}

// lossy is the interceptor of a client that loses the answers to the next requests of a
// kind.
type lossy struct {
	method string
	lose   atomic.Int64
}

func (l *lossy) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := call(ctx, method, req, reply, cc, opts...)
	if strings.HasSuffix(method, l.method) && l.lose.Add(-1) >= 0 {
		return errors.New("the answer is lost")
	}
	return err
}

// A keep without an answer is asked for again, which frees nothing early and leaves no
// lease behind for good.
func TestLockIsKeptThoughTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"/LeaseGrant", "/Txn"} {
		cluster := testserver.Etcd(t, 1)
		loses := &lossy{method: method}
		client := dial(t, cluster.Endpoints(), grpc.WithChainUnaryInterceptor(loses.intercept))
		other := newClient(t, cluster.Endpoints()...)
		lock, over := lockFor(t, newLockerOn(t, client, etcd.Options{}), 3*short)
		loses.lose.Store(2)
		if err := lock.Unlock(patience(t)); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Unlock: %v", err)
		}
		next := mustLock(t, newLockerOn(t, other, etcd.Options{}), "x")
		over("another process")
		mustUnlock(t, next)
		until(t, "only the two sessions have leases", func() bool {
			leases, err := other.Leases(patience(t))
			return err == nil && len(leases.Leases) == 2
		})
	}
}

// A keep that is refused is asked for again and again: with one lease, not with one each time.
func TestKeepThatIsRefusedTakesOneLease(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 1)
	user, root := login(t, cluster.Endpoints(), "locks/")
	locks := etcd.Options{Prefix: "locks/"}
	lock, _ := lockFor(t, newLockerOn(t, user, locks), time.Hour)
	session, end := leaseOf(t, root, "locks/x/"), clientv3.GetPrefixRangeEnd("locks/")
	if _, err := root.RoleRevokePermission(patience(t), "user", "locks/", end); err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(patience(t)); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Unlock: %v", err)
	}
	asked := func() float64 { return cluster.Members[0].Metric(`grpc_server_started_total{grpc_method="Txn"`) }
	before := asked()
	until(t, "it is asked for again", func() bool { return asked() >= before+4 })
	if leases, err := root.Leases(patience(t)); err != nil || len(leases.Leases) > 2 {
		t.Errorf("%d leases, %v; want the session's and that of the key", len(leases.Leases), err)
	}
	if _, err := root.RoleGrantPermission(patience(t), "user", "locks/", end, clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		t.Fatal(err)
	}
	until(t, "the lock is kept", func() bool {
		resp, err := root.Get(patience(t), "locks/x/", clientv3.WithPrefix())
		return err == nil && len(resp.Kvs) == 1 && resp.Kvs[0].Lease != int64(session)
	})
}

// Close ends the session that a lock is on which the servers did not keep, but not early.
func TestCloseDoesNotFreeALockThatCouldNotBeKept(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 1)
	loses := &lossy{method: "/LeaseGrant"}
	client := dial(t, cluster.Endpoints(), grpc.WithChainUnaryInterceptor(loses.intercept))
	l := newLockerOn(t, client, etcd.Options{})
	lock, over := lockFor(t, l, 3*short, locker.WithTTL(short))
	loses.lose.Store(1000)
	if err := lock.Unlock(patience(t)); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Unlock: %v", err)
	}
	_ = l.Close()
	next := mustLock(t, newLockerOn(t, newClient(t, cluster.Endpoints()...), etcd.Options{}), "x")
	over("another process")
	mustUnlock(t, next)
}
