package jvm

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/internal/netproxy"
)

// TestAWriteLockWaitsForItself is a bug that we found in ZooKeeper's WriteLock by reading it
// and have seen reported nowhere: it is in 3.8.0 and, as of July 2026, in the newest. It
// remembers the node that it finds again by its name alone, and that name sorts behind its
// own path.
//
//	a asks for the lock; the server makes its node, and the answer is lost; a asks
//	again, finds the node, and waits for it to go: for itself, though nobody
//	holds. b waits behind a. a unlocks, and its node stays.
func TestAWriteLockWaitsForItself(t *testing.T) {
	t.Parallel()
	addr := server(t).Addr()
	direct := newClient(t, long, addr)
	t.Run("theirs", func(t *testing.T) {
		net := proxy(t, addr)
		a := start(t, writeLock, "WriteLocks.java", net.Addr(), long.Milliseconds())
		b := start(t, writeLock, "WriteLocks.java", addr, long.Milliseconds())
		b.must("locked", "lock", "/theirs") // makes the node above
		b.must("unlocked", "unlock", "/theirs")
		until(t, "a has a session", func() bool { return a.ask("session", "/theirs") != "0" })
		loseAnswer(t, net, direct.conn, "/theirs", func() { a.tell("lock", "/theirs") })
		if got := a.answer(); got != "waits" {
			t.Fatalf("a: %s", got)
		}
		a.must("no", "believes-lock", "/theirs")
		b.must("waits", "lock", "/theirs")
		if all := children(t, direct.conn, "/theirs"); len(all) != 2 {
			t.Fatalf("nodes: %v", all)
		}
	})
	t.Run("ours", func(t *testing.T) {
		net := proxy(t, addr)
		a, b := newClient(t, long, net.Addr()), newClient(t, long, addr)
		unlock(t, lock(t, a, "n")) // makes the nodes above
		var waiting chan result
		loseAnswer(t, net, direct.conn, queue, func() { waiting = begin(t, a, "n") })
		held := take(t, waiting)
		next := begin(t, b, "n")
		until(t, "b waits", func() bool { return len(children(t, direct.conn, queue)) == 2 })
		unlock(t, held)
		last := take(t, next)
		if held.Token() >= last.Token() {
			t.Errorf("tokens %d, %d", held.Token(), last.Token())
		}
		unlock(t, last)
		if all := children(t, direct.conn, queue); len(all) != 0 {
			t.Errorf("left behind: %v", all)
		}
	})
}

// loseAnswer has ask send requests, one after another, until one of them has made a node
// below path. The answer to that one is lost, with the connection.
func loseAnswer(t *testing.T, net *netproxy.Proxy, direct *zk.Conn, path string, ask func()) {
	t.Helper()
	net.CutRepliesAfterOne()
	ask()
	until(t, "the node is there", func() bool {
		_, held := net.HeldBack() // before the look at the nodes: it is no answer to a later request
		if len(children(t, direct, path)) > 0 {
			return true
		}
		if held > 0 {
			net.CutRepliesAfterOne()
		}
		return false
	})
	net.Heal()
}
