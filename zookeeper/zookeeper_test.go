package zookeeper_test

import (
	"reflect"

	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
)

// patience bounds what tests wait for. Nothing is expected to take so long.
const patience = 90 * time.Second

// sessionTimeout of most tests is long, so that a slow machine loses no lock.
const sessionTimeout = 10 * time.Second

// client stands for a process of its own.
type client struct {
	*zookeeper.Locker
	conn *zk.Conn
}

func newClient(t testing.TB, timeout time.Duration, addrs ...string) client {
	t.Helper()
	session := zookeeper.NewSession(nil)
	conn, _, err := zk.Connect(addrs, timeout, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return client{newLocker(t, conn, zookeeper.Options{Session: session}), conn}
}

func newLocker(t testing.TB, conn *zk.Conn, opts zookeeper.Options) *zookeeper.Locker {
	t.Helper()
	l, err := zookeeper.New(conn, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func server(t *testing.T) *testserver.ZooKeeperServer {
	t.Helper()
	return testserver.ZooKeeper(t, 1)[0]
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func lock(t *testing.T, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lk, err := l.Lock(soon(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

func unlock(t *testing.T, lk *locker.Lock) {
	t.Helper()
	if err := lk.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// waiters waits until the store knows of n waiters.
func waiters(t *testing.T, l locker.Inspector, name string, n int) {
	t.Helper()
	ctx := soon(t)
	until(t, fmt.Sprintf("%d waiters", n), func() bool {
		info, err := l.Inspect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Waiters == n
	})
}

// until waits until it is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for ctx := soon(t); !so(); {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// keep makes a queue, and puts a node into it that is no place: the server would remove
// the queue otherwise, a second after its last place has gone.
func keep(t *testing.T, l locker.Locker, conn *zk.Conn, name string, opts ...locker.Option) {
	t.Helper()
	held := lock(t, l, name, opts...)
	defer unlock(t, held)
	if _, err := conn.Create(zookeeper.DefaultBase+"/"+name+"/keep", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
}

// keepEmpty is keep, and leaves the queue empty.
func keepEmpty(t *testing.T, conn *zk.Conn, name string) {
	t.Helper()
	for _, path := range []string{zookeeper.DefaultBase, zookeeper.DefaultBase + "/" + name} {
		if _, err := conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
}

// only returns the path of the only place in a queue.
func only(t *testing.T, conn *zk.Conn, name string) string {
	t.Helper()
	queue := zookeeper.DefaultBase + "/" + name
	children, _, err := conn.Children(queue)
	if err != nil || len(children) != 1 {
		t.Fatalf("children %q, %v", children, err)
	}
	return queue + "/" + children[0]
}

// shown is how an exclusive lock is shown.
func shown(name, holder string, held *locker.Lock) locker.Info {
	only := locker.Holder{Text: holder, Number: locker.Number(held.Token()), Slot: -1, TimeLeft: sessionTimeout}
	return locker.Info{Name: name, Held: true, Holder: holder, Token: held.Token(), TimeLeft: sessionTimeout, Holders: []locker.Holder{only}}
}

func TestTokenIsTheZxidTimes1024(t *testing.T) {
	s := server(t)
	a, b := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, a, "n", locker.WithHolder("me"))
	_, stat, err := a.conn.Get(only(t, a.conn, "n"))
	if err != nil {
		t.Fatal(err)
	}
	if uint64(held.Token()) != uint64(stat.Czxid)<<10 {
		t.Errorf("token %d of zxid %d", held.Token(), stat.Czxid)
	}
	info, err := b.Inspect(soon(t), "n")
	want := shown("n", "me", held)
	if err != nil || !reflect.DeepEqual(info, want) {
		t.Errorf("Inspect = %+v, %v; want %+v", info, err, want)
	}
	unlock(t, held)
}

func TestListShowsWhatIsHeldBelowThePrefix(t *testing.T) {
	s := server(t)
	a, b := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	if infos, err := b.List(soon(t), ""); err != nil || len(infos) != 0 {
		t.Errorf("with no base: %+v, %v", infos, err)
	}
	var want []locker.Info
	for _, name := range []string{"jobs/a", "jobs/%2F", "jobs/🔒", "other"} {
		held := lock(t, a, name, locker.WithHolder("host 1"))
		if name != "other" {
			want = append(want, shown(name, "host 1", held))
		}
	}
	slices.SortFunc(want, func(a, b locker.Info) int { return strings.Compare(a.Name, b.Name) })
	for _, node := range []string{"jobs%2Ffree", "jobs%2fa", "%ff"} { // a name that is free, and two that are none
		if _, err := a.conn.Create(zookeeper.DefaultBase+"/"+node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	if infos, err := b.List(soon(t), "jobs/"); err != nil || !reflect.DeepEqual(infos, want) {
		t.Errorf("listed %+v, %v, want %+v", infos, err, want)
	}
}

func TestHostileNamesAreLocksOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := newClient(t, sessionTimeout, s.Addr())
	names := []string{
		".", "..", "/", "//", "a/b", "a%2Fb", "%", "%2E", "...", "zookeeper", " ", "\n\t\x01\x7f\u0085",
		"größe", "鍵", "🔒", "\uf8ff\ufff0\uffff\ufffd", "lock-0000000000", "_c_x-lock-1", "%session-1",
		strings.Repeat("/", locker.MaxName), strings.Repeat("x", locker.MaxName),
	}
	seen := make(map[string]bool)
	for _, name := range names {
		lk := lock(t, c, name)
		info, err := c.Inspect(soon(t), name)
		if err != nil || !info.Held || info.Token != lk.Token() {
			t.Errorf("Inspect(%.20q) = %+v, %v", name, info, err)
		}
		seen[fmt.Sprint(lk.Token())] = true
	}
	children, _, err := c.conn.Children(zookeeper.DefaultBase)
	if err != nil || len(children) != len(names)+1 { // and the session's
		t.Errorf("%d names made %d nodes %q, error %v", len(names), len(children), children, err)
	}
}
