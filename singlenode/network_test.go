package singlenode_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// behind returns a Locker whose network can be broken.
func behind(t *testing.T, srv *testserver.RedisServer) (*singlenode.Locker, *netproxy.Proxy) {
	t.Helper()
	p, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: -1})
	return newLockerOn(t, rdb, singlenode.Options{}), p
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

// The subscription is being opened, to a server that does not answer, and the
// client is as patient as it is by default.
func TestCloseDoesNotWaitForASubscriptionToASilentServer(t *testing.T) {
	srv := testserver.Redis(t)
	mustLock(t, newLocker(t, srv.Addr(), singlenode.Options{}), "a")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var dials atomic.Int32
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			addr = silent.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	const handshake = time.Minute
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Dialer: dial, DialTimeout: handshake, ReadTimeout: handshake})
	l := newLockerOn(t, rdb, singlenode.Options{})
	ended := make(chan error, 1)
	go func() {
		_, err := l.Lock(patience(t), "a")
		ended <- err
	}()
	until(t, "the subscription", func() bool { return dials.Load() == 2 })
	start := time.Now()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, locker.ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	if took := time.Since(start); took > handshake/2 {
		t.Errorf("Close and the end of the waiting took %v", took)
	}
}
