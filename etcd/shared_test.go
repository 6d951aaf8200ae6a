package etcd_test

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

// requests counts what a server has been asked that concerns locks.
func requests(srv *testserver.EtcdServer) float64 {
	const asked = `grpc_server_started_total{grpc_method="`
	return srv.Metric(asked+`Txn"`) + srv.Metric(asked+`DeleteRange"`) + srv.Metric(asked+`Range"`) + srv.Metric(asked+`Put"`)
}

// Other readers hold the lock meanwhile, as many as you like.
func TestReaderTakesOneRequestAndGivesBackInOne(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	l, other := newLocker(t, srv.Addr()), newLocker(t, srv.Addr())
	reading := locker.WithShared()
	for range 3 {
		mustLock(t, other, "x", reading, locker.WithHolder("another"))
		mustLock(t, l, "x", reading, locker.WithTTL(time.Minute))
	}
	before := requests(srv)
	mustUnlock(t, mustLock(t, l, "x", reading))
	lock, err := l.TryLock(patience(t), "x", reading, locker.WithHolder("not shared with the others of this process"))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, lock)
	if n := requests(srv) - before; n != 4 {
		t.Errorf("%v requests for two readers, want 4", n)
	}
}

// Two readers of a process, on one lease, keep a Mutex out until both have left. It keeps
// later readers out as it waits.
func TestMutexOfEtcdsClientExcludesReadersAndTheyIt(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l, late := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	reading := locker.WithShared()
	first, second := mustLock(t, l, "x", reading), mustLock(t, l, "x", reading, locker.WithHolder("another"))
	mutex := newMutex(t, client, "x")
	if err := mutex.TryLock(patience(t)); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("a Mutex's TryLock while we read: %v", err)
	}
	locked := make(chan error, 1)
	go func() { locked <- mutex.Lock(patience(t)) }()
	until(t, "the Mutex waits for us", func() bool { return waiters(t, l, "x") == 1 })
	if _, err := late.TryLock(patience(t), "x", reading); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("a reader's TryLock while a Mutex waits: %v", err)
	}
	got := lockLater(t, late, "x", reading)
	until(t, "a reader waits for the Mutex", func() bool { return waiters(t, l, "x") == 2 })
	mustUnlock(t, first)
	if info, err := l.Inspect(patience(t), "x"); err != nil || info.Kind != locker.KindShared || len(info.Holders) != 1 || info.Waiters != 2 {
		t.Errorf("one reader in front of a Mutex and a reader is shown as %+v, %v", info, err)
	}
	mustUnlock(t, second)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if info, err := l.Inspect(patience(t), "x"); err != nil || !info.Held || info.Kind != locker.KindExclusive || len(info.Holders) != 1 || info.Waiters != 1 {
		t.Errorf("a Mutex in front of a reader is shown as %+v, %v", info, err)
	}
	if err := mutex.Unlock(patience(t)); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, received(t, got))
}

// When a writer unlocks, the readers behind it ask once each, those behind the next writer
// do not, and neither does that writer.
func TestReleaseWakesOnlyTheReadersThatMayGo(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	l := newLocker(t, srv.Addr())
	writer := mustLock(t, l, "x")
	var got []<-chan *locker.Lock
	for i, opts := range [][]locker.Option{{locker.WithShared()}, {locker.WithShared()}, {}, {locker.WithShared()}} {
		got = append(got, lockLater(t, newLocker(t, srv.Addr()), "x", opts...))
		until(t, "it waits", func() bool { return waiters(t, l, "x") == i+1 })
	}
	before := settled(srv)
	mustUnlock(t, writer)
	readers := []*locker.Lock{received(t, got[0]), received(t, got[1])}
	if n := settled(srv) - before; n != 3 {
		t.Errorf("%v requests when a writer gave the lock to two readers: one of its own and one of each reader are enough", n)
	}
	for _, lock := range readers {
		mustUnlock(t, lock)
	}
	mustUnlock(t, received(t, got[2]))
	mustUnlock(t, received(t, got[3]))
}

// The key that is kept for WithMinHold is a writer's, by nobody.
func TestReadersWaitForTheEndOfAMinimumHold(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	a, b := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	const hold = 3 * time.Second
	began := time.Now()
	mustUnlock(t, mustLock(t, a, "x", locker.WithMinHold(hold)))
	lock, err := b.TryLock(patience(t), "x", locker.WithShared())
	if !errors.Is(err, locker.ErrTaken) && time.Since(began) < hold {
		t.Errorf("a reader within a minimum hold: %v, %v", lock, err)
	}
	lock = mustLock(t, b, "x", locker.WithShared())
	if took := time.Since(began); took < hold {
		t.Errorf("a reader was served after %v of a minimum hold of %v", took, hold)
	}
	mustUnlock(t, lock)
}

// Others may read and write under the same lock, so it is no condition for a write.
func TestSharedLockIsNoCondition(t *testing.T) {
	l := newLocker(t, testserver.Etcd(t, 1).Endpoints()...)
	lock := mustLock(t, l, "x", locker.WithShared())
	if held, err := l.Held(lock); err == nil || held != (clientv3.Cmp{}) {
		t.Errorf("the condition of a reader is %v, %v", held, err)
	}
	mustUnlock(t, lock)
}
