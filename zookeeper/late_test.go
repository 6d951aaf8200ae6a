package zookeeper_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/zookeeper"
)

// The zk client keeps a request that it could not send, also until after the
// session has ended, and then sends it in the next one: long after its attempt
// failed, and with nobody left who knows of it.
func TestRequestThatIsSentInTheNextSessionMakesNoPlace(t *testing.T) {
	t.Parallel()
	s := server(t)
	var mu sync.Mutex // the network: held while it is down
	var last net.Conn
	session := zookeeper.NewSession(func(network, _ string, timeout time.Duration) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		var err error
		last, err = net.DialTimeout(network, s.Addr(), timeout)
		return last, err
	})
	// With fewer servers the client drops such a request before it goes on.
	addrs := []string{"127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"}
	conn, _, err := zk.Connect(addrs, time.Second, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a, b := newLocker(t, conn, zookeeper.Options{Session: session}), newClient(t, 2*sessionTimeout, s.Addr()) // b outlasts a stall that a does not
	keep(t, b, b.conn, "n2")
	keep(t, a, conn, "n")
	id := conn.SessionID()

	mu.Lock()
	last.Close()
	until(t, "the client to notice", func() bool { return conn.State() != zk.StateHasSession })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	_, err = a.TryLock(ctx, "n")
	cancel()
	if err == nil {
		t.Error("TryLock succeeded without a network")
	}
	until(t, "the end of one of two sessions", func() bool { return sessions(t, b.conn) == 1 })
	mu.Unlock()

	unlock(t, lock(t, a, "n2"))
	if conn.SessionID() == id {
		t.Fatal("the session has not ended: nothing is tested")
	}
	held := lock(t, b, "n")
	if info, err := b.Inspect(soon(t), "n"); err != nil || info.Waiters != 0 {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	unlock(t, held)
}

// listening is a connection that keeps what the server has said first.
type listening struct {
	net.Conn
	mu   sync.Mutex
	said []byte
}

func (c *listening) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.said) < 4096 {
		c.said = append(c.said, b[:n]...)
	}
	return n, err
}

// endSession ends the session of a connection from another one, as who knows its password
// can. Its client hears of that when it has connected again.
func endSession(t *testing.T, addr string, c *listening) {
	t.Helper()
	c.mu.Lock()
	said := append([]byte(nil), c.said...) // length, version, timeout, session, length and password
	c.mu.Unlock()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	greeting := make([]byte, 4+4+8+4, 64)
	binary.BigEndian.PutUint32(greeting, 44)
	copy(greeting[16:], said[8:12])
	greeting = append(greeting, said[12:40]...)
	end := make([]byte, 12)
	binary.BigEndian.PutUint32(end, 8)
	binary.BigEndian.PutUint32(end[4:], 1)
	binary.BigEndian.PutUint32(end[8:], uint32(1<<32-11))
	if _, err := conn.Write(greeting); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 40)
	if _, err := io.ReadFull(conn, answer); err != nil || !bytes.Equal(answer[12:20], said[12:20]) {
		t.Fatalf("the session was not taken over: %x, %v", answer, err)
	}
	if _, err := conn.Write(end); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil { // it hangs up
		t.Fatal(err)
	}
}

// A session may end at the servers' side long before the holder's validity does.
//
//	a holds a lock and somebody ends its session; a's client has another; a locks
//	another name
func TestLocksOfASessionThatSomebodyHasEndedAreLost(t *testing.T) {
	t.Parallel()
	s := server(t)
	var first *listening
	session := zookeeper.NewSession(func(network, addr string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, timeout)
		if err != nil || first != nil {
			return conn, err
		}
		first = &listening{Conn: conn}
		return first, nil
	})
	conn, _, err := zk.Connect([]string{s.Addr()}, time.Minute, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	minute := locker.WithTTL(time.Minute)
	a, b := newLocker(t, conn, zookeeper.Options{Session: session}), newClient(t, time.Minute, s.Addr())
	held := lock(t, a, "n", minute)
	id := conn.SessionID()
	endSession(t, s.Addr(), first)
	until(t, "the client's next session", func() bool { return conn.SessionID() != id && conn.State() == zk.StateHasSession })
	next := lock(t, a, "m", minute)
	if lost := (*locker.LostError)(nil); !errors.As(held.Err(), &lost) || lost.Reason != locker.SessionEnded {
		t.Errorf("the client has another session, and the lock of the last one: %v", held.Err())
	}
	unlock(t, lock(t, b, "n", minute))
	if err := next.Err(); err != nil {
		t.Error(err)
	}
	unlock(t, next)
	unlock(t, lock(t, a, "n", minute))
}

// sessions counts those on which locks hang.
func sessions(t *testing.T, conn *zk.Conn) (n int) {
	t.Helper()
	nodes, _, err := conn.Children(zookeeper.DefaultBase)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	for _, node := range nodes {
		if strings.HasPrefix(node, "%session-") {
			n++
		}
	}
	return n
}
