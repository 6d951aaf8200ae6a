package zookeeper_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/zookeeper"
)

// The zk client keeps a request that it could not send, also until after the
// session has ended, and then sends it in the next one: long after its attempt
// failed, and with nobody left who knows of it. A busy machine may end the attempt before
// its request has reached the client: then it is played again, with more time for that.
func TestRequestThatIsSentInTheNextSessionMakesNoPlace(t *testing.T) {
	t.Parallel()
	s := server(t)
	b := newClient(t, locker.DefaultTTL, s.Addr())
	keep(t, b, b.conn, "n")
	keep(t, b, b.conn, "n2")
	within := 100 * time.Millisecond
	for ; !sentLate(t, s.Addr(), b, within); within *= 2 {
		if within > patience {
			t.Fatal("no request was sent in a session that is not its own")
		}
	}
}

// sentLate has a request for a place in n wait until its session has ended, and reports
// whether it was sent in the next one. Then b finds no place.
func sentLate(t *testing.T, addr string, b client, within time.Duration) bool {
	t.Helper()
	var mu sync.Mutex // the network: held while it is down
	var last *noting
	session := zookeeper.NewSession(func(network, _ string, timeout time.Duration) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		conn, err := net.DialTimeout(network, addr, timeout)
		if err != nil {
			return nil, err
		}
		last = &noting{listening: listening{Conn: conn}}
		return last, nil
	})
	// With fewer servers the client drops such a request before it goes on.
	addrs := []string{"127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"}
	conn, _, err := zk.Connect(addrs, locker.DefaultTTL, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a := newLocker(t, conn, zookeeper.Options{Session: session})
	unlock(t, lock(t, a, "n"))
	id := conn.SessionID()

	mu.Lock()
	cut := last
	cut.Close()
	until(t, "the client to notice", func() bool { return conn.State() != zk.StateHasSession })
	ctx, cancel := context.WithTimeout(context.Background(), within)
	_, err = a.TryLock(ctx, "n")
	cancel()
	if err == nil {
		t.Error("TryLock succeeded without a network")
	}
	endSession(t, addr, &cut.listening)
	mu.Unlock()

	unlock(t, lock(t, a, "n2")) // after the request, if that has reached the client
	mu.Lock()
	sent := conn.SessionID() != id && last.asked.Load()
	mu.Unlock()
	if !sent {
		return false
	}
	held, err := b.TryLock(soon(t), "n")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := b.Inspect(soon(t), "n"); err != nil || info.Waiters != 0 {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	unlock(t, held)
	return true
}

// noting is a connection that notes whether somebody has asked for a place in n on it.
type noting struct {
	listening
	asked atomic.Bool
}

// Write gets every request as a whole: its length, its number, what it asks for, and the rest.
func (c *noting) Write(b []byte) (int, error) {
	const multi = 14
	if len(b) > 12 && binary.BigEndian.Uint32(b[8:]) == multi && bytes.Contains(b, []byte(zookeeper.DefaultBase+"/n/")) {
		c.asked.Store(true)
	}
	return c.listening.Write(b)
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
	if lost := (*locker.LostError)(nil); !errors.As(held.Err(), &lost) || lost.Reason != locker.ReasonSessionEnded {
		t.Errorf("the client has another session, and the lock of the last one: %v", held.Err())
	}
	unlock(t, lock(t, b, "n", minute))
	if err := next.Err(); err != nil {
		t.Error(err)
	}
	unlock(t, next)
	unlock(t, lock(t, a, "n", minute))
}
