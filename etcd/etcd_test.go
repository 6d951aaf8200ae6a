package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"runtime/pprof"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
)

func newClient(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	return dial(t, endpoints)
}

func dial(t testing.TB, endpoints []string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 30 * time.Second, DialOptions: opts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newLocker stands for a process of its own.
func newLocker(t testing.TB, endpoints ...string) *etcd.Locker {
	t.Helper()
	return newLockerOn(t, newClient(t, endpoints...), etcd.Options{})
}

func newLockerOn(t testing.TB, client *clientv3.Client, opts etcd.Options) *etcd.Locker {
	t.Helper()
	l, err := etcd.New(client, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func patience(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustLock(t testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lock, err := l.Lock(patience(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// lockLater locks in a goroutine of its own. The channel is closed without a lock
// if that fails.
func lockLater(t testing.TB, l locker.Locker, name string, opts ...locker.Option) <-chan *locker.Lock {
	t.Helper()
	ctx, got := patience(t), make(chan *locker.Lock, 1)
	go func() {
		defer close(got)
		lock, err := l.Lock(ctx, name, opts...)
		if err != nil {
			t.Errorf("lock %q: %v", name, err)
			return
		}
		got <- lock
	}()
	return got
}

func received(t testing.TB, got <-chan *locker.Lock) *locker.Lock {
	t.Helper()
	lock := <-got
	if lock == nil {
		t.FailNow()
	}
	return lock
}

func waiters(t testing.TB, l *etcd.Locker, name string) int {
	t.Helper()
	info, err := l.Inspect(patience(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Waiters
}

// inLine counts the goroutines that wait in a Locker's own line.
func inLine() int {
	var stacks bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2) // a Buffer takes everything
	return bytes.Count(stacks.Bytes(), []byte("driver.(*Locker[...]).waitInLine("))
}

// waitBehind has b lock x in a goroutine of its own while it is held, and returns
// when a sees b wait. The channel gets the error that ends the wait.
func waitBehind(t testing.TB, ctx context.Context, a, b *etcd.Locker, opts ...locker.Option) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		_, err := b.Lock(ctx, "x", opts...)
		result <- err
	}()
	until(t, "b waits", func() bool { return waiters(t, a, "x") == 1 })
	return result
}

func mustUnlock(t testing.TB, lock *locker.Lock) {
	t.Helper()
	if err := lock.Unlock(patience(t)); err != nil {
		t.Fatal(err)
	}
}

// keys returns what is in the store below a prefix.
func keys(t testing.TB, client *clientv3.Client, prefix string) []string {
	t.Helper()
	resp, err := client.Get(patience(t), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// until waits for a condition that somebody else brings about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not after a minute: %s", what)
		}
	}
}

func TestLockAndUnlockAreOneRoundTripEach(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	l := newLocker(t, srv.Addr())
	mustUnlock(t, mustLock(t, l, "warm"))
	const all = "grpc_server_handled_total"
	const txn = `grpc_server_handled_total{grpc_code="OK",grpc_method="Txn"`
	const deletion = `grpc_server_handled_total{grpc_code="OK",grpc_method="DeleteRange"`
	calls, txns, deletions := srv.Metric(all), srv.Metric(txn), srv.Metric(deletion)
	for range 10 {
		mustUnlock(t, mustLock(t, l, "a"))
	}
	calls, txns, deletions = srv.Metric(all)-calls, srv.Metric(txn)-txns, srv.Metric(deletion)-deletions
	if calls != 20 || txns != 10 || deletions != 10 {
		t.Errorf("10 locks took %v calls, %v transactions and %v deletions among them; 20 are enough", calls, txns, deletions)
	}
}

// One that asks may not leave anything in the queue, where somebody waits for it.
func TestAttemptThatFindsItTakenPutsNothing(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	a, b := newLockerOn(t, client, etcd.Options{}), newLockerOn(t, client, etcd.Options{})
	lock := mustLock(t, a, "x")
	revision := func() int64 {
		resp, err := client.Get(patience(t), "x")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	before := revision()
	for _, l := range []*etcd.Locker{a, b} {
		if _, err := l.TryLock(patience(t), "x"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of a held lock: %v", err)
		}
	}
	if got := revision(); got != before {
		t.Errorf("%d writes by attempts that were refused", got-before)
	}
	mustUnlock(t, lock)
	if got := keys(t, client, ""); len(got) != 0 {
		t.Errorf("keys left behind: %q", got)
	}
}

// A grant has tokens for all goroutines that the lock is passed on to.
func TestGrantHasTokensOfItsRevisionAlone(t *testing.T) {
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	first := mustLock(t, l, "x")
	resp, err := client.Get(patience(t), "x/", clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	if want := fencing.Token(resp.Kvs[0].CreateRevision) << 10; first.Token() != want {
		t.Errorf("token %d, want %d", first.Token(), want)
	}
	next := lockLater(t, l, "x")
	until(t, "it waits", func() bool { return inLine() >= 1 })
	mustUnlock(t, first)
	second := received(t, next)
	if second.Token() != first.Token()+1 && (second.Token() <= first.Token() || second.Token()%(1<<10) != 0) { // its turn, or a grant of its own
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	mustUnlock(t, second)
}
