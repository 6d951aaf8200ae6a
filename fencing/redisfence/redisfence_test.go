package redisfence_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/redisfence"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

func setUp(t *testing.T) (*testserver.RedisServer, *redis.Client, context.Context) {
	t.Helper()
	srv := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(func() {
		cancel()
		_ = rdb.Close()
	})
	return srv, rdb, ctx
}

func newGuard(t *testing.T, rdb redis.UniversalClient) *redisfence.Guard {
	t.Helper()
	g, err := redisfence.NewGuard(rdb)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func newCounter(t *testing.T, rdb redis.UniversalClient) *redisfence.Counter {
	t.Helper()
	c, err := redisfence.NewCounter(rdb)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestStaleWriteIsRefusedAndChangesNothing(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	if _, err := g.Do(ctx, "k", 34, "SET", "new"); err != nil {
		t.Fatal(err)
	}
	_, err := g.Do(ctx, "k", 33, "SET", "old")
	var stale *fencing.StaleError
	if !errors.Is(err, fencing.ErrStale) || !errors.As(err, &stale) || stale.Seen != 34 || stale.Token != 33 || stale.Resource != "k" {
		t.Errorf("a stale write: %v", err)
	}
	if got := srv.Do("GET", "k"); got != "new" {
		t.Errorf("the stale write got in: %q", got)
	}
	if reply, err := g.Do(ctx, "k", 34, "GET"); err != nil || reply != "new" {
		t.Errorf("the same token again: %v, %v", reply, err)
	}
}

func TestZeroTokenIsRefusedAndWritesNothing(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	if _, err := g.Do(ctx, "k", 0, "SET", "old"); !errors.Is(err, fencing.ErrZeroToken) {
		t.Errorf("a write: %v", err)
	}
	if err := g.Check(ctx, "k", 0); !errors.Is(err, fencing.ErrZeroToken) {
		t.Errorf("a check: %v", err)
	}
	if got := srv.Do("KEYS", "*"); got != "" {
		t.Errorf("after it there is %q", got)
	}
}

func TestClaimClosesTheWindowBeforeTheFirstWrite(t *testing.T) {
	_, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	if err := g.Check(ctx, "k", 34); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Do(ctx, "k", 33, "SET", "old"); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("an earlier holder's write after the claim: %v", err)
	}
	if err := g.Check(ctx, "k", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("an earlier holder's claim: %v", err)
	}
}

// Tokens of other stores may use all 64 bits, where Lua's numbers round.
func TestTokensAreComparedExactly(t *testing.T) {
	_, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	for _, token := range []fencing.Token{9, 10, 1 << 53, 1<<53 + 1, 1<<64 - 2, 1<<64 - 1} {
		if err := g.Check(ctx, "k", token); err != nil {
			t.Errorf("token %d: %v", token, err)
		}
		if err := g.Check(ctx, "k", token-1); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("token %d after %d: %v", token-1, token, err)
		}
	}
}

func TestRefusedCommandAndBadArgumentsAreErrors(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	if _, err := g.Do(ctx, "k", 1, ""); err == nil || srv.Do("KEYS", "*") != "" {
		t.Errorf("an empty command: %v, and there is %q", err, srv.Do("KEYS", "*"))
	}
	if _, err := g.Do(ctx, "k", 2, "NOSUCHCOMMAND"); err == nil || !strings.Contains(err.Error(), `"k"`) {
		t.Errorf("an unknown command: %v", err)
	}
	if err := g.Check(ctx, "k", 1); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("the token of a failed write was forgotten: %v", err)
	}
}

func TestGuardsOfDifferentKeysAreIndependent(t *testing.T) {
	_, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	for _, key := range []string{"a", "{a}", "{a}b", "a}b", "{}", ""} {
		if err := g.Check(ctx, key, 5); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	if err := g.Check(ctx, "other", 1); err != nil {
		t.Error(err)
	}
}

func TestCounterIncreasesAlsoAfterTheServerForgot(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	c := newCounter(t, rdb)
	var mu sync.Mutex
	seen := make(map[fencing.Token]bool)
	var last fencing.Token
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				token, err := c.Next(ctx, "n")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[token] {
					t.Errorf("token %d twice", token)
				}
				seen[token], last = true, max(last, token)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	srv.Kill()
	srv.Wipe()
	srv.Start()
	if token, err := c.Next(ctx, "n"); err != nil || token <= last {
		t.Errorf("token %d after a crash, %d before: %v", token, last, err)
	}
}

// Nothing was lost, so the clock does not matter.
func TestCounterIncreasesThoughTheClockWasSteppedBack(t *testing.T) {
	clock := testserver.NewClock(t)
	rdb := redis.NewClient(&redis.Options{Addr: testserver.RedisWithEnv(t, clock.Env()).Addr()})
	defer rdb.Close()
	c := newCounter(t, rdb)
	before, err := c.Next(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if err := clock.Step(-time.Hour); err != nil {
		t.Fatal(err)
	}
	if token, err := c.Next(t.Context(), "n"); err != nil || token != before+1 {
		t.Errorf("token %d after a step back, %d before: %v", token, before, err)
	}
}

// Somebody carries on from counters in nanoseconds, or a counter comes to where Lua rounds.
func TestCounterBeyondWhatIsCountedExactlyIsAnErrorAndNotOneTokenForMany(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	c := newCounter(t, rdb)
	srv.Do("SET", "lockstile:c:{n}", "9007199254740990")
	if token, err := c.Next(ctx, "n"); err != nil || token != 1<<53-1 {
		t.Errorf("the last token: %d, %v", token, err)
	}
	srv.Do("SET", "lockstile:c:{m}", "1800000000000000000")
	for _, name := range []string{"n", "m"} {
		for range 3 {
			if token, err := c.Next(ctx, name); err == nil {
				t.Errorf("token %d", token)
			}
		}
	}
}

// The whole path: a holder that is paused past its lease (here: it does not
// renew, and does not look) writes late.
func TestLateWriteOfALostHolderIsRefused(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	first, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	defer second.Close()
	stale, err := first.Lock(ctx, "k", locker.WithTTL(300*time.Millisecond), locker.WithoutRenewal())
	if err != nil {
		t.Fatal(err)
	}
	err = locker.Do(ctx, second, "k", func(ctx context.Context, lock *locker.Lock) error {
		if _, err := g.Do(ctx, "k1", stale.Token(), "SET", "late"); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("a late write: %v", err)
		}
		_, err := g.Do(ctx, "k2", lock.Token(), "SET", "v")
		return err
	}, locker.WithGuard(g, "k1"))
	if err != nil {
		t.Fatal(err)
	}
	if srv.Do("EXISTS", "k2") != "1" {
		t.Error("the new holder's write is missing")
	}
	if stale.Err() == nil {
		t.Error("the first holder still believes")
	}
}
