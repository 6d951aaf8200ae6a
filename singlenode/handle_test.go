package singlenode_test

import (
	"context"
	"errors"
	"io"
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

func detached(t *testing.T, l locker.Locker, name string, opts ...locker.Option) locker.Handle {
	t.Helper()
	h, err := mustLock(t, l, name, opts...).Detach(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestResumeWhoseWaitIsRefusedHasHappened(t *testing.T) {
	srv := testserver.Redis(t)
	h := detached(t, newLocker(t, srv.Addr(), singlenode.Options{}), "a", locker.WithTTL(time.Hour))
	srv.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-wait")
	refused := newLockerOn(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"}), singlenode.Options{Replicas: 1})
	before := srv.Do("GET", "a")
	_, err := locker.Resume(patience(t), refused, h)
	stillGood(t, srv, before, h, err)
}

func stillGood(t *testing.T, srv *testserver.RedisServer, before string, h locker.Handle, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("it is resumed")
	}
	good := newLocker(t, srv.Addr(), singlenode.Options{})
	if errors.Is(err, locker.ErrOutcomeUnknown) {
		var failed *locker.ResumeError
		if !errors.As(err, &failed) {
			t.Fatalf("no ResumeError: %v", err)
		}
		h = failed.Handle
	}
	changed := srv.Do("GET", "a") != before
	lock, again := locker.Resume(patience(t), good, h)
	if again != nil {
		t.Fatalf("Resume said: %v\n(ErrRefused %v, ErrOutcomeUnknown %v). The key's value has changed: %v. The handle is good for: %v. The lock is left for %s ms, by nobody",
			err, errors.Is(err, locker.ErrRefused), errors.Is(err, locker.ErrOutcomeUnknown), changed, again, srv.Do("PTTL", "a"))
	}
	mustUnlock(t, lock)
}

type losing struct {
	did   atomic.Bool
	after func()
}

func (l *losing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && err == nil && l.did.CompareAndSwap(false, true) {
			l.after()
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}
}

func TestResumeWhoseSecondTryIsRefusedHasHappened(t *testing.T) {
	srv := testserver.Redis(t)
	h := detached(t, newLocker(t, srv.Addr(), singlenode.Options{}), "a", locker.WithTTL(time.Hour))
	srv.Do("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all")
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"})
	rdb.AddHook(&losing{after: func() { srv.Do("ACL", "DELUSER", "u") }})
	l := newLockerOn(t, rdb, singlenode.Options{})
	before := srv.Do("GET", "a")
	_, err := locker.Resume(patience(t), l, h)
	stillGood(t, srv, before, h, err)
}

func TestLateRenewalDoesNotShortenWhatAHandleHasRenewed(t *testing.T) {
	srv := testserver.Redis(t)
	proxy, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, PoolSize: 1})
	l := newLockerOn(t, rdb, singlenode.Options{})
	held := mustLock(t, l, "a", locker.WithTTL(6*time.Second))
	proxy.Stall()
	until(t, "a renewal to be stalled", func() bool { asked, _ := proxy.HeldBack(); return asked > 0 })
	var h locker.Handle
	until(t, "the lock to be detached over another connection", func() bool {
		h, err = held.Detach(patience(t))
		return err == nil || errors.Is(err, locker.ErrLost)
	})
	if err != nil {
		t.Fatal(err)
	}
	other := newLocker(t, srv.Addr(), singlenode.Options{})
	if err := locker.RenewHandle(patience(t), other, h, locker.WithTTL(time.Hour)); err != nil {
		t.Fatal(err)
	}
	before := srv.Do("PTTL", "a")
	proxy.Deliver()
	time.Sleep(time.Second)
	after := srv.Do("PTTL", "a")
	if len(after) < 7 {
		t.Errorf("after a renewal for an hour, that was confirmed, %s ms were left; then a late one made it %s ms", before, after)
	}
}

// Those who wait in the same process, and in another one, are woken.
func TestWaitersAreWokenByUnlockHandle(t *testing.T) {
	srv := testserver.Redis(t)
	a, b := newLocker(t, srv.Addr(), singlenode.Options{}), newLocker(t, srv.Addr(), singlenode.Options{})
	for _, waits := range []*singlenode.Locker{a, b} {
		held := mustLock(t, a, "a", locker.WithTTL(time.Hour))
		got := make(chan *locker.Lock, 3)
		for range 3 {
			go func() {
				next, err := waits.Lock(patience(t), "a", locker.WithTTL(time.Hour))
				if err != nil {
					t.Error(err)
				}
				got <- next
			}()
		}
		time.Sleep(200 * time.Millisecond)
		h, err := held.Detach(patience(t))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		if err := locker.UnlockHandle(patience(t), a, h); err != nil {
			t.Fatal(err)
		}
		for range 3 { // else they wait for the end of the lease, and their contexts end before
			if next := <-got; next != nil {
				mustUnlock(t, next)
			}
		}
	}
}
