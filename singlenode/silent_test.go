package singlenode_test

import (
	"context"
	"errors"
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

// never is longer than any test: whatever lasts for that long does not end.
const never = time.Hour

// broken returns a Locker on a client with these options, and the network between it and srv. The
// connections of the client, and the scripts of the server, are there.
func broken(t *testing.T, srv *testserver.RedisServer, o redis.Options) (*singlenode.Locker, *netproxy.Proxy) {
	t.Helper()
	p, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	o.Addr = p.Addr()
	l := newLockerOn(t, redis.NewClient(&o), singlenode.Options{})
	t.Cleanup(p.Heal) // before the Locker is closed
	mustUnlock(t, mustLock(t, l, "warm"))
	if _, err := l.Inspect(patience(t), "warm"); err != nil {
		t.Fatal(err)
	}
	return l, p
}

// asked are the calls that may last for as long as the client's timeouts.
var asked = map[string]func(context.Context, *singlenode.Locker) error{
	"Lock":    func(ctx context.Context, l *singlenode.Locker) error { _, err := l.Lock(ctx, "a"); return err },
	"TryLock": func(ctx context.Context, l *singlenode.Locker) error { _, err := l.TryLock(ctx, "b"); return err },
	"Inspect": func(ctx context.Context, l *singlenode.Locker) error { _, err := l.Inspect(ctx, "c"); return err },
	"List":    func(ctx context.Context, l *singlenode.Locker) error { _, err := l.List(ctx, ""); return err },
	"Break":   func(ctx context.Context, l *singlenode.Locker) error { _, err := l.Break(ctx, "d"); return err },
}

// Goal: each call of a silent server ends, by what the documentation says of its client.
func TestCallsOfASilentServerEnd(t *testing.T) {
	deadline := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	cancelled := func(t *testing.T) context.Context {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(300*time.Millisecond, cancel)
		return ctx
	}
	lasting := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), never)
		t.Cleanup(cancel)
		return ctx
	}
	for name, c := range map[string]struct {
		client redis.Options
		ctx    func(*testing.T) context.Context
		why    error
	}{
		"the client's timeout, no end":      {redis.Options{ReadTimeout: time.Second}, func(*testing.T) context.Context { return context.Background() }, nil},
		"the client's timeout, later end":   {redis.Options{ReadTimeout: time.Second}, lasting, nil},
		"the client's timeout, cancelled":   {redis.Options{ReadTimeout: time.Second}, cancelled, context.Canceled},
		"heeds, the client's timeout":       {redis.Options{ReadTimeout: time.Second, ContextTimeoutEnabled: true}, lasting, nil},
		"heeds, a deadline":                 {redis.Options{ReadTimeout: never, ContextTimeoutEnabled: true}, deadline, context.DeadlineExceeded},
		"no timeouts, cancelled":            {redis.Options{ReadTimeout: -1}, cancelled, context.Canceled},
		"no timeouts, a deadline":           {redis.Options{ReadTimeout: -1}, deadline, context.DeadlineExceeded},
		"no deadlines at all, cancelled":    {redis.Options{ReadTimeout: -2, ContextTimeoutEnabled: true}, cancelled, context.Canceled},
		"no deadlines at all, a deadline":   {redis.Options{ReadTimeout: -2, ContextTimeoutEnabled: true}, deadline, context.DeadlineExceeded},
		"no timeout of writing, a deadline": {redis.Options{ReadTimeout: never, WriteTimeout: -1}, deadline, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, p := broken(t, testserver.Redis(t), c.client)
			p.Cut()
			type end struct {
				what string
				err  error
			}
			ends := make(chan end, len(asked))
			for what, call := range asked {
				go func() { ends <- end{what, call(c.ctx(t), l)} }()
			}
			for range asked {
				select {
				case e := <-ends:
					if !errors.Is(e.err, locker.ErrUnavailable) || errors.Is(e.err, locker.ErrTaken) || c.why != nil && !errors.Is(e.err, c.why) {
						t.Errorf("%s: %v", e.what, e.err)
					}
				case <-time.After(30 * time.Second):
					t.Fatal("some call of a silent server does not end")
				}
			}
		})
	}
}

// Goal: another goroutine sends a request only where the client would not end it. Method: a hook panics, which
// reaches the caller where the request runs in its goroutine.
func TestARequestRunsInItsCallersGoroutineWhereTheClientEndsIt(t *testing.T) {
	srv := testserver.Redis(t)
	for name, c := range map[string]struct {
		client       redis.Options
		lock, unlock bool
	}{
		"defaults":    {redis.Options{}, true, false},
		"heeds":       {redis.Options{ContextTimeoutEnabled: true}, true, true},
		"no timeouts": {redis.Options{ReadTimeout: -1}, false, false},
		"no deadline": {redis.Options{ReadTimeout: -2, ContextTimeoutEnabled: true}, false, false},
		"no write":    {redis.Options{WriteTimeout: -2, ContextTimeoutEnabled: true}, false, false},
	} {
		c.client.Addr = srv.Addr()
		rdb := redis.NewClient(&c.client)
		rdb.AddHook(panics{})
		l := newLockerOn(t, rdb, singlenode.Options{})
		provoked, cancel := context.WithCancel(context.WithValue(context.Background(), provoking{}, true))
		defer cancel()
		reaches := func(what string, want bool, f func() error) {
			err := recovered(f)
			if err == nil || strings.HasPrefix(err.Error(), "recovered: ") != want {
				t.Errorf("%s: %s in the caller's goroutine: want %v; the hook has panicked, and it ended with: %v", name, what, want, err)
			}
		}
		for what, call := range asked {
			if what != "List" { // which a pipeline of no names does not provoke
				reaches(what, c.lock, func() error { return call(provoked, l) })
			}
		}
		reaches("Unlock", c.unlock, func() error { return mustLock(t, l, "u").Unlock(provoked) })
		lock := mustLock(t, l, "r")
		reaches("Renew", false, func() error { return lock.Renew(provoked) })
		mustUnlock(t, lock)
	}
}

// Goal: the end of a context is noticed at the answer, and what that grants is given back. Method: the answer
// is held back until the caller has given up. The client reads for as long as the answer takes.
func TestGrantThatComesAfterItsCallerGaveUpIsGivenBack(t *testing.T) {
	for name, heeds := range map[string]bool{"heeds": true, "defaults": false} {
		for verb, once := range map[string]bool{"Lock": false, "TryLock": true} {
			t.Run(name+" "+verb, func(t *testing.T) {
				t.Parallel()
				srv := testserver.Redis(t)
				l, p := broken(t, srv, redis.Options{ReadTimeout: never, ContextTimeoutEnabled: heeds})
				ctx, cancel := context.WithCancelCause(context.Background())
				p.CutReplies()
				ended := make(chan error, 1)
				go func() {
					ask := l.Lock
					if once {
						ask = l.TryLock
					}
					_, err := ask(ctx, "a", locker.WithTTL(never))
					ended <- err
				}()
				srv.Await("the grant", func() bool { return srv.Do("EXISTS", "a") == "1" })
				why := errors.New("the caller's own reason")
				cancel(why)
				p.Deliver()
				if err := <-ended; !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, why) || errors.Is(err, locker.ErrOutcomeUnknown) {
					t.Fatal(err)
				}
				until(t, "the lock to be given back", func() bool { return srv.Do("EXISTS", "a") == "0" })
			})
		}
	}
}

// A waiter asks, and the Locker is closed before the answer comes, which is a grant. Close does not wait for
// the client, which reads for ever, and the lock does not stay behind.
func TestGrantThatComesAfterCloseIsGivenBack(t *testing.T) {
	srv := testserver.Redis(t)
	other := newLocker(t, srv.Addr(), singlenode.Options{})
	l, p := broken(t, srv, redis.Options{ReadTimeout: never})
	ended := grantedUnheard(t, srv, other, l, p)
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Close waits for a client that reads for ever")
	}
	p.Deliver()
	if err := <-ended; !errors.Is(err, locker.ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	srv.Await("the lock to be given back", func() bool { return srv.Do("EXISTS", "a") == "0" })
}

// grantedUnheard has the server grant "a" to a waiter of l's that does not hear of it, and returns how
// its Lock ends. On a machine that stalls the network may break too early, while an answer from before the
// grant is under way, which the waiter then waits for, or too late, when it has heard: then it plays again,
// with more time for that answer.
func grantedUnheard(t *testing.T, srv *testserver.RedisServer, other, l *singlenode.Locker, p *netproxy.Proxy) <-chan error {
	t.Helper()
	for settle := 50 * time.Millisecond; ; settle *= 3 {
		mustLock(t, other, "a", locker.WithTTL(2*time.Second+2*settle), locker.WithoutRenewal())
		holders := srv.Do("GET", "a")
		heard, ended := make(chan *locker.Lock, 1), make(chan error, 1)
		go func() {
			if lock, err := l.Lock(context.Background(), "a", locker.WithTTL(never)); err == nil {
				heard <- lock
			} else {
				ended <- err
			}
		}()
		until(t, "it waits", func() bool {
			return len(heard) > 0 || srv.Do("ZCARD", "lockstile:q:{a}") == "1" || srv.Do("GET", "a") != holders
		})
		time.Sleep(settle)
		p.CutReplies()
		early, began := false, time.Now()
		srv.Await("the next grant", func() bool {
			now := srv.Do("GET", "a")
			early = time.Since(began) > 10*time.Second+2*settle
			return early || len(heard) > 0 || now != holders && now != "" && !strings.HasPrefix(now, "?")
		})
		if !early {
			select {
			case lock := <-heard:
				heard <- lock
			case <-time.After(time.Second): // one that has heard of it says so by now
				return ended
			}
		}
		p.Deliver()
		select {
		case lock := <-heard:
			mustUnlock(t, lock)
		case err := <-ended:
			t.Fatal(err)
		}
	}
}

// Goal: one dead connection loses no lock, though the client would read from it for longer than the lock
// lasts. Method: a renewal is sent over a connection that is silent from then on. New ones work.
func TestADeadConnectionLosesNoLockWhileOthersWork(t *testing.T) {
	for name, heeds := range map[string]bool{"heeds": true, "defaults": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var renewals atomic.Int32
			srv := testserver.Redis(t)
			l, p := broken(t, srv, redis.Options{ReadTimeout: never, WriteTimeout: never, ContextTimeoutEnabled: heeds})
			lock := mustLock(t, l, "a", locker.WithTTL(6*time.Second))
			p.Stall()
			for renewals.Load() < 3 {
				before := lock.Deadline()
				until(t, "a renewal", func() bool { return lock.Err() != nil || lock.Deadline().After(before.Add(100*time.Millisecond)) })
				if err := lock.Err(); err != nil {
					t.Fatal(err)
				}
				renewals.Add(1)
			}
			mustUnlock(t, lock)
		})
	}
}

// A clean-up is sent over a connection that is dead. It is given up after its own time, and the next one works.
func TestADeadConnectionDelaysNoCleanUpForLong(t *testing.T) {
	srv := testserver.Redis(t)
	l, p := broken(t, srv, redis.Options{ReadTimeout: 3 * time.Second, WriteTimeout: never})
	held := mustLock(t, newLocker(t, srv.Addr(), singlenode.Options{}), "a")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := l.Lock(ctx, "a")
		ended <- err
	}()
	until(t, "it waits", func() bool { return srv.Do("ZCARD", "lockstile:q:{a}") == "1" })
	p.Stall()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	began := time.Now()
	srv.Await("its place to be given up", func() bool { return srv.Do("ZCARD", "lockstile:q:{a}") == "0" })
	t.Logf("its place was given up after %v", time.Since(began))
	mustUnlock(t, held)
}
