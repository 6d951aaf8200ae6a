package zookeeper_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/zookeeper"
)

func TestSessionLearnsWhatTheServerGrants(t *testing.T) {
	t.Parallel()
	s := server(t)
	for asked, granted := range map[time.Duration]time.Duration{
		time.Hour:              time.Minute,            // the server's limit
		300 * time.Millisecond: 500 * time.Millisecond, // two of its ticks
		5 * time.Second:        5 * time.Second,
	} {
		session := zookeeper.NewSession(nil)
		conn, _, err := zk.Connect([]string{s.Addr()}, asked, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = conn.Exists("/")
		conn.Close()
		if got := session.Timeout(); err != nil || got != granted {
			t.Errorf("asked for %v: granted %v, want %v; error %v", asked, got, granted, err)
		}
	}
}

func TestTTLUnderTheSessionTimeoutIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := newClient(t, 5*time.Second, s.Addr())
	_, err := c.Lock(soon(t), "n", locker.WithTTL(5*time.Second-time.Millisecond))
	if err == nil || !strings.Contains(err.Error(), "5s") {
		t.Errorf("a TTL under the session timeout: %v", err)
	}
	_, err = c.Lock(soon(t), "n", locker.WithMinValidity(4*time.Second))
	if err == nil || !strings.Contains(err.Error(), "5s") {
		t.Errorf("a validity that cannot be had: %v", err)
	}
	unlock(t, lock(t, c, "n", locker.WithTTL(5*time.Second)))
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	s := server(t)
	conn := newClient(t, sessionTimeout, s.Addr()).conn
	session := zookeeper.NewSession(nil)
	for name, opts := range map[string]zookeeper.Options{
		"no timeout":       {},
		"two timeouts":     {Session: session, SessionTimeout: time.Second},
		"relative base":    {Session: session, Base: "locks"},
		"root":             {Session: session, Base: "/"},
		"slash at the end": {Session: session, Base: "/locks/"},
		"system's base":    {Session: session, Base: "/zookeeper/locks"},
		"system's node":    {Session: session, Base: "/zookeeper"},
		"dots":             {Session: session, Base: "/a/../b"},
		"control":          {Session: session, Base: "/a\x01"},
	} {
		if _, err := zookeeper.New(conn, opts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := zookeeper.New(nil, zookeeper.Options{Session: session}); err == nil {
		t.Error("a nil connection was accepted")
	}
	l := newLocker(t, conn, zookeeper.Options{Session: session}) // not the connection's
	if _, err := l.TryLock(soon(t), "n"); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("a Session that the connection does not use: %v", err)
	}
}

func TestNodesAreMadeWithTheACL(t *testing.T) {
	t.Parallel()
	s := server(t)
	c, stranger := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	if err := c.conn.AddAuth("digest", []byte("user:secret")); err != nil {
		t.Fatal(err)
	}
	acl := zk.DigestACL(zk.PermAll, "user", "secret")
	l := newLocker(t, c.conn, zookeeper.Options{SessionTimeout: sessionTimeout, Base: "/deep/er/locks", ACL: acl})
	held := lock(t, l, "n")
	for nodes := []string{"/deep"}; len(nodes) > 0; nodes = nodes[1:] {
		children, _, err := c.conn.Children(nodes[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range children {
			nodes = append(nodes, nodes[0]+"/"+node)
		}
		if got, _, err := c.conn.GetACL(nodes[0]); err != nil || !slices.Equal(got, acl) {
			t.Errorf("%s has the ACL %v, %v", nodes[0], got, err)
		}
	}
	other := newLocker(t, stranger.conn, zookeeper.Options{SessionTimeout: sessionTimeout, Base: "/deep/er/locks"})
	_, err := other.TryLock(soon(t), "n")
	if !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, zk.ErrNoAuth) || strings.Contains(err.Error(), "secret") {
		t.Errorf("TryLock of a stranger: %v", err)
	}
	if _, err := other.Break(soon(t), "n"); err == nil {
		t.Error("a stranger broke the lock")
	}
	unlock(t, held)
}

// A waiter that may not look any more must not wait for ever.
//
//	b waits; somebody takes away its permission to read the queue; a unlocks
func TestWaiterWhosePermissionIsTakenAwayIsTold(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := newClient(t, sessionTimeout, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, a, "n")
	waited := make(chan error, 1)
	go func() { _, err := b.Lock(context.Background(), "n"); waited <- err }()
	waiters(t, a, "n", 1)
	until(t, "a watch", func() bool { return b.Watches() > 0 })
	if _, err := a.conn.SetACL(zookeeper.DefaultBase+"/n", zk.WorldACL(zk.PermDelete|zk.PermAdmin), -1); err != nil {
		t.Fatal(err)
	}
	unlock(t, held)
	select {
	case err := <-waited:
		if !errors.Is(err, zk.ErrNoAuth) || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the waiter: %v", err)
		}
	case <-time.After(patience):
		t.Error("it waits for ever")
	}
}

func TestClosedConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	s := server(t)
	c, other := newClient(t, 2*time.Second, s.Addr()), newClient(t, sessionTimeout, s.Addr())
	held := lock(t, other, "n")
	waited := make(chan error, 1)
	go func() { _, err := c.Lock(context.Background(), "n"); waited <- err }()
	waiters(t, other, "n", 1)
	c.conn.Close()
	if _, err := c.TryLock(soon(t), "m"); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("TryLock on a closed connection: %v", err)
	}
	if _, err := c.Lock(context.Background(), "m"); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Lock on a closed connection: %v", err)
	}
	select {
	case err := <-waited:
		if !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("a waiter on a closed connection: %v", err)
		}
	case <-time.After(patience):
		t.Error("a waiter on a closed connection waits on")
	}
	unlock(t, held)
}
