package zookeeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Session learns from the servers' greetings which session timeout they have
// granted, which may be shorter than what was asked for and which the zk client
// keeps to itself. It also sees the connection's Close, and ends the locks that
// hang on it before the servers do: the client tells nobody, and renewals come too
// late, for the server lets the next waiter in at once. Give its Dial to one connection:
//
//	session := zookeeper.NewSession(nil)
//	conn, _, err := zk.Connect(servers, 10*time.Second, zk.WithDialer(session.Dial))
//	…
//	l, err := zookeeper.New(conn, zookeeper.Options{Session: session})
type Session struct {
	dial    zk.Dialer
	timeout atomic.Int64

	mu     sync.Mutex
	closed bool // by the connection's owner
	hubs   map[*hub]struct{}
}

// NewSession returns a Session that connects with dial, for TLS say; nil stands
// for plain TCP.
func NewSession(dial zk.Dialer) *Session {
	if dial == nil {
		dial = net.DialTimeout
	}
	return &Session{dial: dial, hubs: make(map[*hub]struct{})}
}

// Dial is a [zk.Dialer].
func (s *Session) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := s.dial(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &greeted{Conn: conn, session: s}, nil
}

// Timeout returns what the server granted last, or 0 if none has answered yet.
func (s *Session) Timeout() time.Duration { return time.Duration(s.timeout.Load()) }

// greeted reads along until the server's greeting has passed: its length, the
// protocol's version and the session timeout in milliseconds, four bytes each.
type greeted struct {
	net.Conn
	session *Session
	seen    []byte
	done    bool
}

const greeting = 12

func (g *greeted) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.done {
		return n, err
	}
	g.seen = append(g.seen, b[:min(n, greeting-len(g.seen))]...)
	if len(g.seen) == greeting {
		g.done = true
		// An expired session is greeted with a timeout of 0.
		if ms := int32(binary.BigEndian.Uint32(g.seen[8:])); ms > 0 {
			g.session.granted(time.Duration(ms) * time.Millisecond)
		}
	}
	return n, err
}

// granted notes a session timeout.
func (s *Session) granted(timeout time.Duration) {
	s.timeout.Store(int64(timeout))
	s.look(false)
}

const (
	opClose   = -11
	opCodeAt  = 8  // after the length and the request's number
	opCodeEnd = 12 // the zk client writes every request as a whole
)

// Write ends the locks before the request that ends the session is sent.
func (g *greeted) Write(b []byte) (int, error) {
	if len(b) >= opCodeEnd && int32(binary.BigEndian.Uint32(b[opCodeAt:])) == opClose {
		g.session.look(true)
	}
	return g.Conn.Write(b)
}

// look ends what hangs on the connection and cannot be relied on any more. When it
// returns nobody believes in such a lock.
func (s *Session) look(closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || closed
	for h := range s.hubs {
		s.judge(h)
	}
}

var (
	errShorter = errors.New("the server that the client has changed to grants a shorter session timeout")
	errClosed  = errors.New("the connection was closed")
)

// judge ends h if it is over, or was made under a longer timeout: it is believed in for
// longer than the server may keep it by now.
func (s *Session) judge(h *hub) {
	switch {
	case s.closed:
		h.Lose(locker.SessionEnded, errClosed)
	case s.Timeout() < h.timeout:
		h.Lose(locker.Expired, errShorter)
	}
}

// refused marks an error on a connection that nobody will open again.
func (s *Session) refused(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.Refused(fmt.Errorf("%w: %w", errClosed, err))
	}
	return err
}

func (s *Session) note(h *hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge(h)
	if h.Context().Err() == nil { // else it was forgotten, or will be
		s.hubs[h] = struct{}{}
	}
}

func (s *Session) forget(h *hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hubs, h)
}
