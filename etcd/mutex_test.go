package etcd_test

import (
	"bufio"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

func newMutex(t *testing.T, client *clientv3.Client, name string) *concurrency.Mutex {
	t.Helper()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return concurrency.NewMutex(session, name)
}

func TestMutexOfEtcdsClientExcludesUsAndWeIt(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	theirs := newMutex(t, client, "shared")
	if err := theirs.Lock(patience(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryLock(patience(t), "shared"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock while a Mutex is held: %v", err)
	}
	if info, err := l.Inspect(patience(t), "shared"); err != nil || !info.Held || info.Holder != "" {
		t.Errorf("a Mutex is shown as %+v, %v", info, err)
	}
	got := lockLater(t, l, "shared")
	until(t, "we wait for the Mutex", func() bool { return waiters(t, l, "shared") == 1 })
	if err := theirs.Unlock(patience(t)); err != nil {
		t.Fatal(err)
	}
	ours := received(t, got)
	if err := theirs.TryLock(patience(t)); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("a Mutex's TryLock while we hold the lock: %v", err)
	}
	locked := make(chan error, 1)
	go func() { locked <- theirs.Lock(patience(t)) }()
	until(t, "the Mutex waits for us", func() bool { return waiters(t, l, "shared") == 1 })
	mustUnlock(t, ours)
	if err := <-locked; err != nil {
		t.Error(err)
	}
}

func TestPrefixGoesBeforeEveryKeyAsItIs(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{Prefix: "/locks/"})
	lock := mustLock(t, l, "a")
	if err := newMutex(t, client, "/locks/a").TryLock(patience(t)); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("a Mutex on prefix and name: %v", err)
	}
	mustUnlock(t, lock)
}

// Either of two names may be there first: a prefix is in the way of the one that
// looks, not of the one that is looked at.
func TestNamesDoNotShareKeys(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	a, b := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	names := []string{"a", "a/", "a/b", "a//b", "a%2Fb", "a%252Fb", "..", "../a", "/", "/a", "%", "%mark", "a/%mark"}
	for range 2 {
		var held []*locker.Lock
		for _, name := range names {
			lock, err := a.TryLock(patience(t), name)
			if err != nil {
				t.Fatalf("%q, while others are held: %v", name, err)
			}
			held = append(held, lock)
			if _, err := b.TryLock(patience(t), name); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("%q is held, and free for another: %v", name, err)
			}
		}
		for _, lock := range held {
			mustUnlock(t, lock)
		}
		slices.Reverse(names)
	}
}

// etcdctlLock runs etcdctl lock, which waits for the lock, tells its key on the channel,
// and gives it back at the first signal.
func etcdctlLock(t *testing.T, cluster *testserver.EtcdCluster, name string) (*os.Process, <-chan string) {
	t.Helper()
	command := cluster.Etcdctl("lock", name)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill() // it has ended, mostly
		_ = command.Wait()
	})
	key := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		key <- line
	}()
	return command.Process, key
}

func TestEtcdctlLockExcludesUsAndWeIt(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 1)
	l := newLocker(t, cluster.Endpoints()...)
	theirs, key := etcdctlLock(t, cluster, "shared")
	if got := <-key; !strings.HasPrefix(got, "shared/") {
		t.Fatalf("etcdctl says %q", got)
	}
	if _, err := l.TryLock(patience(t), "shared"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock while etcdctl has the lock: %v", err)
	}
	got := lockLater(t, l, "shared")
	until(t, "we wait for etcdctl", func() bool { return waiters(t, l, "shared") == 1 })
	if err := theirs.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	ours := received(t, got)
	_, key = etcdctlLock(t, cluster, "shared")
	until(t, "etcdctl waits for us", func() bool { return waiters(t, l, "shared") == 1 })
	select {
	case got := <-key:
		t.Errorf("etcdctl says %q while we hold the lock", got)
	default:
	}
	mustUnlock(t, ours)
	if got := <-key; !strings.HasPrefix(got, "shared/") {
		t.Errorf("etcdctl says %q", got)
	}
}
