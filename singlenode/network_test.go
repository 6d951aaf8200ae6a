package singlenode_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
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
	pause := time.Millisecond
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(pause) {
		pause = min(2*pause, 20*time.Millisecond)
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

// loseGrant acts when the server has granted a lock, and then loses the reply.
type loseGrant struct {
	redis.Hook
	act atomic.Pointer[func()] // taken when it is called
}

func (*loseGrant) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*loseGrant) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *loseGrant) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil || cmd.Name() != "evalsha" || h.act.Load() == nil {
			return err
		}
		if _, err := cmd.(interface{ Int64() (int64, error) }).Int64(); err == nil { // else it is taken
			(*h.act.Swap(nil))()
			cmd.SetErr(io.EOF)
		}
		return cmd.Err()
	}
}

// The lock is granted, and broken before its holder has heard of it. The server
// refuses that value from then on, for a minute, and for longer where the attempt's
// own requests may come later than that.
func TestWhoWasBrokenBeforeItHeardOfItsGrantIsServed(t *testing.T) {
	srv := testserver.Redis(t)
	other := newLocker(t, srv.Addr(), singlenode.Options{})
	rdb, hook := redis.NewClient(&redis.Options{Addr: srv.Addr()}), new(loseGrant)
	l := newLockerOn(t, rdb, singlenode.Options{})
	mustUnlock(t, mustLock(t, l, "a")) // the server knows the script
	rdb.AddHook(hook)
	loseNext := func() {
		act := func() {
			if broken, err := other.Break(patience(t), "a"); err != nil || !broken {
				t.Errorf("Break: %v, %v", broken, err)
			}
		}
		hook.act.Store(&act)
	}
	left := func(how string) {
		if n := srv.Do("EXISTS", "a", "lockstile:q:{a}"); n != "0" || hook.act.Load() != nil {
			t.Errorf("%s: %s keys of the lock and its queue are left, and no grant was lost: %v", how, n, hook.act.Load() != nil)
		}
		for mark := range strings.FieldsSeq(srv.Do("KEYS", "lockstile:m:{a}:*")) {
			if ms, err := strconv.Atoi(srv.Do("PTTL", mark)); err != nil || ms < 80_000 { // a TTL and a minute
				t.Errorf("%s: its old value is refused for %d ms", how, ms)
			}
		}
	}

	held := mustLock(t, other, "a")
	grants := waitIn(t, other, "a", l)
	loseNext()
	mustUnlock(t, held)
	mustUnlock(t, next(t, grants).lock)
	left("who waits")

	loseNext()
	lock, err := l.TryLock(patience(t), "a")
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, lock)
	left("who tries")
}
