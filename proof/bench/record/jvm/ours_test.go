package jvm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
)

// queue is the node below which the nodes of the name "n" are: of who holds, and who waits.
const queue = zookeeper.DefaultBase + "/n"

// client is a Locker of ours on a session of its own, as of a process of its own.
type client struct {
	*zookeeper.Locker
	conn *zk.Conn
}

func newClient(t *testing.T, timeout time.Duration, addr string) client {
	t.Helper()
	session := zookeeper.NewSession(nil)
	conn, _, err := zk.Connect([]string{addr}, timeout, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	l, err := zookeeper.New(conn, zookeeper.Options{Session: session})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // what it could not remove ends with the session
	return client{l, conn}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func server(t *testing.T) *testserver.ZooKeeperServer {
	t.Helper()
	return testserver.ZooKeeper(t, 1)[0]
}

func proxy(t *testing.T, target string) *netproxy.Proxy {
	t.Helper()
	p, err := netproxy.Listen(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

// result is what Lock returned.
type result struct {
	lock *locker.Lock
	err  error
}

// begin is Lock in the background. Where the store is away meanwhile, it asks again.
func begin(t *testing.T, l locker.Locker, name string, opts ...locker.Option) chan result {
	t.Helper()
	ctx, got, done := soon(t), make(chan result, 1), make(chan struct{})
	go func() {
		defer close(done)
		for {
			lk, err := l.Lock(ctx, name, opts...)
			if ctx.Err() != nil || !errors.Is(err, locker.ErrUnavailable) {
				got <- result{lk, err}
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { <-done })
	return got
}

// take is what begin has got.
func take(t *testing.T, got <-chan result) *locker.Lock {
	t.Helper()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.lock
}

// taken fails the test unless somebody holds the name. Where the store is away, it asks
// again.
func taken(t *testing.T, l locker.Locker, name string, opts ...locker.Option) {
	t.Helper()
	until(t, name+" is found taken", func() bool {
		_, err := l.TryLock(soon(t), name, opts...)
		if !errors.Is(err, locker.ErrTaken) && !errors.Is(err, locker.ErrUnavailable) {
			t.Fatalf("TryLock of a taken name: %v", err)
		}
		return errors.Is(err, locker.ErrTaken)
	})
}

// until waits until it is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for ctx := soon(t); !so(); {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("still waiting for this: %s", what)
		}
	}
}

// children returns the nodes below path, once the server is there.
func children(t *testing.T, conn *zk.Conn, path string) (all []string) {
	t.Helper()
	until(t, "the server shows "+path, func() bool {
		var err error
		all, _, err = conn.Children(path)
		return err == nil || errors.Is(err, zk.ErrNoNode)
	})
	return all
}
