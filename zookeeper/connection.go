package zookeeper

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
)

// Session learns from the servers' greetings which session timeout they have
// granted. The zk client does not tell that, and it may differ from what was asked for.
// Session also sees the connection's Close, and ends the locks before the servers do: the
// client tells nobody, and a renewal would come too late, for the servers let the next
// waiter in at once. Give its Dial to one connection:
//
//	session := zookeeper.NewSession(nil)
//	conn, _, err := zk.Connect(servers, 10*time.Second, zk.WithDialer(session.Dial))
//	…
//	l, err := zookeeper.New(conn, zookeeper.Options{Session: session})
type Session struct {
	dial    zk.Dialer
	timeout atomic.Int64
	closed  atomic.Bool // the connection was, by its owner: nobody will open it again

	mu       sync.Mutex
	sessions map[*session]struct{} // that locks hang on
}

// NewSession returns a Session that connects with dial, for TLS say; nil stands
// for plain TCP.
func NewSession(dial zk.Dialer) *Session {
	if dial == nil {
		dial = net.DialTimeout
	}
	return &Session{dial: dial, sessions: make(map[*session]struct{})}
}

// Dial is a [zk.Dialer]. It is called for every connection that the zk client opens.
func (s *Session) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := s.dial(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, session: s}, nil
}

// Timeout returns what the server granted last, or 0 if none has answered yet.
func (s *Session) Timeout() time.Duration { return time.Duration(s.timeout.Load()) }

// watchedConn is a connection of which a Session sees the greeting and the close. It reads
// along until the greeting has passed: its length, the protocol's version and the session
// timeout in milliseconds, four bytes each.
type watchedConn struct {
	net.Conn
	session *Session
	seen    []byte
	done    bool
}

const greeting = 12

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.done {
		return n, err
	}
	c.seen = append(c.seen, b[:min(n, greeting-len(c.seen))]...)
	if len(c.seen) == greeting {
		c.done = true
		// An expired session is greeted with a timeout of 0.
		if ms := int32(binary.BigEndian.Uint32(c.seen[8:])); ms > 0 {
			c.session.granted(time.Duration(ms) * time.Millisecond)
		}
	}
	return n, err
}

// SetReadDeadline shortens how long the zk client waits for a greeting, which is ten times
// as long as for anything else. Meanwhile it tries no other server, and this one may have
// lost its leader.
func (c *watchedConn) SetReadDeadline(t time.Time) error {
	most := time.Now().Add(cmp.Or(c.session.Timeout(), firstAnswer))
	if !c.done && t.After(most) {
		t = most
	}
	return c.Conn.SetReadDeadline(t)
}

// granted notes a session timeout.
func (s *Session) granted(timeout time.Duration) {
	s.timeout.Store(int64(timeout))
	s.check()
}

const (
	opClose   = -11
	opCodeAt  = 8  // after the length and the request's number
	opCodeEnd = 12 // the zk client writes every request as a whole
)

// Write ends the locks before the request that ends the session is sent.
func (c *watchedConn) Write(b []byte) (int, error) {
	if len(b) >= opCodeEnd && int32(binary.BigEndian.Uint32(b[opCodeAt:])) == opClose {
		c.session.closed.Store(true)
		c.session.check()
	}
	return c.Conn.Write(b)
}

var (
	errShorter = errors.New("the server that the client has changed to grants a shorter session timeout")
	errClosed  = errors.New("the connection was closed")
)

// check ends all sessions of a connection that was closed, and those that count on a longer
// timeout than there is now: their locks are believed in for longer than the server may
// keep them. When check returns, nobody believes in such a lock.
func (s *Session) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.sessions {
		switch {
		case s.closed.Load():
			n.Lose(locker.ReasonSessionEnded, errClosed)
		case s.Timeout() < n.timeout:
			n.Lose(locker.ReasonExpired, errShorter)
		}
	}
}

// note has n end with the connection.
func (s *Session) note(n *session) {
	s.mu.Lock()
	s.sessions[n] = struct{}{}
	s.mu.Unlock()
	s.check()
	context.AfterFunc(n.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, n)
	})
}
