// Package record shows bugs of other libraries on the versions that go.mod names, and that
// Lockstile does not have them: docs/TRACK_RECORD.md lists them. Each test has two
// halves. "theirs" fails when the library no longer has the bug, so that the page is not
// left to say what is no longer true. "ours" plays the same on our backend.
package record

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/netproxy"
)

// mended ends a test whose bug did not show.
func mended(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Fatalf("this version no longer has the bug: say so in docs/TRACK_RECORD.md. "+format, args...)
}

// patient is long enough for any machine and short enough to fail a test.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// await waits until ok.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for ctx := patient(t); !ok(); time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("it did not happen that %s", what)
		}
	}
}

// within reports whether ok became true in that time.
func within(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

// network is what is between one client and a server.
func network(t *testing.T, addr string) *netproxy.Proxy {
	t.Helper()
	p, err := netproxy.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// unheard calls ask with a second's time while the server's answers are lost. It does so
// until the server has done what was asked: a busy machine may not send it in that time.
// ready makes what a client asks for only once, such as a connection.
func unheard(t *testing.T, net *netproxy.Proxy, ready func(), ask func(context.Context) error, done func() bool) {
	t.Helper()
	await(t, "the server did what was asked and the caller did not hear of it", func() bool {
		ready()
		net.CutReplies()
		defer net.Heal()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := ask(ctx)
		return err != nil && done()
	})
}

// redisAt returns a client that heeds the deadlines of contexts.
func redisAt(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// made fails the test if a Locker could not be made, and closes it in the end.
func made[L interface {
	locker.Locker
	Close() error
}](t *testing.T) func(L, error) L {
	return func(l L, err error) L {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
}

// ready locks another name once, and unlocks it.
func ready(t *testing.T, l locker.Locker) func() {
	return func() {
		t.Helper()
		if err := locked(t)(l.Lock(patient(t), "another")).Unlock(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// locked fails the test if a lock was not granted.
func locked(t *testing.T) func(*locker.Lock, error) *locker.Lock {
	return func(lock *locker.Lock, err error) *locker.Lock {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
}

// muted is a logger of ZooKeeper's client, and silent one of Redis'. They drop everything.
type (
	muted  struct{}
	silent struct{}
)

func (muted) Printf(string, ...any)                   {}
func (silent) Printf(context.Context, string, ...any) {}
