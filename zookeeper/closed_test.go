package zookeeper_test

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/zookeeper"
)

// The end of a connection ends its session at once, and the next waiter is let
// in: the holder must not believe until its validity is over.
//
//	a locks; b waits; a's connection is closed by its owner (the usual
//	deferred Close of a program that ends); the server removes a's node;
//	b is granted the lock: does a still believe?
func TestLockIsLostBeforeItsConnectionIsClosed(t *testing.T) {
	s := server(t)
	a, b := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, a, "n")
	next := make(chan *locker.Lock, 1)
	go func() {
		defer close(next)
		if lk, err := b.Lock(soon(t), "n"); err == nil {
			next <- lk
		}
	}()
	waiters(t, b, "n", 1)
	a.conn.Close()
	lk := <-next
	if lk == nil {
		t.Fatal("the next was not served")
	}
	if held.Err() == nil {
		t.Errorf("two believe: the holder until %v, the next one with token %d", held.Deadline(), lk.Token())
	}
	unlock(t, lk)
}

// asking is a connection that asks for another session timeout than its client
// does: what comes of it is what a server with other limits grants.
type asking struct {
	net.Conn
	timeout time.Duration // 0: the client's
	asked   bool
}

const timeoutAt = 16 // after the length, the version and the last zxid

func (c *asking) Write(b []byte) (int, error) {
	if !c.asked && c.timeout != 0 {
		binary.BigEndian.PutUint32(b[timeoutAt:], uint32(c.timeout.Milliseconds()))
	}
	c.asked = true
	return c.Conn.Write(b)
}

// A holder that counts on a long session must not go on doing so when the client
// has changed to a server that grants a short one.
//
//	a locks under a session of 20 s; b waits; a's client connects to a server
//	that grants 1 s, and is cut off; the session ends 1 s later and b is granted
//	the lock: does a still believe, for the 13 s it had?
func TestLockIsLostWhenTheClientChangesToAServerThatGrantsLess(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := conformance.NewProxy(t, s.Addr())
	var shorter atomic.Int64
	session := zookeeper.NewSession(func(network, addr string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, timeout)
		return &asking{Conn: conn, timeout: time.Duration(shorter.Load())}, err
	})
	conn, _, err := zk.Connect([]string{p.Addr()}, 20*time.Second, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	a, b := newLocker(t, conn, zookeeper.Options{Session: session}), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, a, "n")
	next := make(chan *locker.Lock, 1)
	go func() {
		defer close(next)
		if lk, err := b.Lock(soon(t), "n"); err == nil {
			next <- lk
		}
	}()
	waiters(t, b, "n", 1)
	shorter.Store(int64(time.Second))
	p.Heal() // hangs up
	until(t, "another connection", func() bool { return session.Timeout() == time.Second })
	p.Cut()
	lk := <-next
	if lk == nil {
		t.Fatal("the next was not served")
	}
	if held.Err() == nil {
		t.Errorf("two believe: the holder until %v, the next one with token %d", held.Deadline(), lk.Token())
	}
	unlock(t, lk)
}
