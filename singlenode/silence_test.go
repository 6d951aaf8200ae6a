package singlenode

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/redisnode"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: that data keeps a lock taken is said only where the server has just said so, for
// everybody in line is told. Method: data stands under the lock's name, an attempt waits
// and asks again and again, and the network falls silent. Its context ends while a question is
// under way, which nobody answers.
func TestDataUnderTheNameIsNotSaidOfASilentServer(t *testing.T) {
	srv := testserver.Redis(t)
	p, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l, a := attemptAtData(t, srv, p.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, _, err := l.store.Acquire(ctx, a, func() context.Context { return ctx })
		ended <- err
	}()
	srv.Await("it to wait", func() bool { return srv.Do("ZCARD", "lockstile:q:{a}") == "1" })
	p.Cut()
	srv.Await("a question", func() bool {
		requests, replies := p.HeldBack()
		return requests+replies > 0
	})
	cancel()
	if err := <-ended; errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.Canceled) {
		t.Errorf("nobody has answered, and: %v", err)
	}
}

// The context ends while the attempt sleeps, right after the server's answer.
func TestDataUnderTheNameIsSaidToAWaitThatEnds(t *testing.T) {
	srv := testserver.Redis(t)
	l, a := attemptAtData(t, srv, srv.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, _, err := l.store.Acquire(ctx, a, func() context.Context {
		if srv.Do("ZCARD", "lockstile:q:{a}") == "1" {
			cancel()
		}
		return ctx
	}); !errors.Is(err, redisnode.ErrNoLock) {
		t.Error(err)
	}
}

// attemptAtData returns an attempt, by way of addr, at a lock under whose name srv has data.
func attemptAtData(t *testing.T, srv *testserver.RedisServer, addr string) (*Locker, *attempt) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Hour, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := New(rdb, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	req, err := driver.NewRequest(nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.store.Begin(req)
	if err != nil {
		t.Fatal(err)
	}
	srv.Do("SET", "a", "the data")
	return l, a
}
