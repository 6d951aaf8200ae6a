package record

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
)

// long is a session timeout that no stall of a machine outlasts.
const long = 30 * time.Second

func zooKeeperAt(t *testing.T, addr string) *zk.Conn {
	conn, _, err := zk.Connect([]string{addr}, long, zk.WithLogger(muted{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	await(t, "the client has a session", func() bool { return conn.State() == zk.StateHasSession })
	return conn
}

func children(t *testing.T, conn *zk.Conn, path string) []string {
	t.Helper()
	all, _, err := conn.Children(path)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestZkLockLeavesItsNodeIfTheConnectionBreaks is samuel/go-zookeeper #229.
func TestZkLockLeavesItsNodeIfTheConnectionBreaks(t *testing.T) {
	srv := testserver.ZooKeeperWith(t, 1, "maxSessionTimeout=60000")[0]
	direct := zooKeeperAt(t, srv.Addr())
	for _, path := range []string{"/theirs", zookeeper.DefaultBase} {
		if _, err := direct.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("theirs", func(t *testing.T) {
		net := network(t, srv.Addr())
		conn := zooKeeperAt(t, net.Addr())
		var lock *zk.Lock
		await(t, "the node was made, and Lock returned an error", func() bool {
			lock = zk.NewLock(conn, "/theirs", zk.WorldACL(zk.PermAll))
			return breakAfterOneAnswer(t, net, lock.Lock) != nil && len(children(t, direct, "/theirs")) > 0
		})
		id := conn.SessionID()
		await(t, "the client has its session again", func() bool { return conn.State() == zk.StateHasSession })
		if conn.SessionID() != id {
			t.Fatal("the session has ended, which is another story")
		}
		if within(3*time.Second, func() bool { return len(children(t, direct, "/theirs")) == 0 }) {
			mended(t, "the node was removed")
		}
		if err := lock.Unlock(); err != zk.ErrNotLocked {
			mended(t, "Unlock says: %v", err)
		}
		t.Log("nobody holds the lock, nobody can give it back, and everybody waits for a node of a session that lives")
	})
	t.Run("ours", func(t *testing.T) {
		net := network(t, srv.Addr())
		conn := zooKeeperAt(t, net.Addr())
		l := made[*zookeeper.Locker](t)(zookeeper.New(conn, zookeeper.Options{SessionTimeout: long}))
		path := zookeeper.DefaultBase + "/ours"
		before := int32(-1) // so many times a node came or went, when the store was asked
		changes := func() int32 {
			_, queue, err := direct.Exists(path)
			if err != nil {
				t.Fatal(err)
			}
			return queue.Cversion
		}
		unheard(t, net, func() {
			if err := locked(t)(l.Lock(patient(t), "ours")).Unlock(patient(t)); err != nil {
				t.Fatal(err)
			}
			before = changes()
		}, func(ctx context.Context) error {
			lock, err := l.TryLock(ctx, "ours")
			if err == nil {
				_ = lock.Unlock(patient(t))
			}
			return err
		}, func() bool { return changes() > before })
		other := made[*zookeeper.Locker](t)(zookeeper.New(direct, zookeeper.Options{SessionTimeout: long}))
		lock := locked(t)(other.Lock(patient(t), "ours"))
		if err := lock.Unlock(patient(t)); err != nil {
			t.Error(err)
		}
	})
}

// breakAfterOneAnswer breaks the connection when the second answer to lock is on its way.
func breakAfterOneAnswer(t *testing.T, net *netproxy.Proxy, lock func() error) error {
	net.CutRepliesAfterOne()
	done := calling(lock)
	await(t, "an answer is held back", func() bool { _, replies := net.HeldBack(); return replies > 0 || len(done) > 0 })
	net.Heal()
	return <-done
}
