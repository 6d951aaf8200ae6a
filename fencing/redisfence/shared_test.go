package redisfence_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/redisfence"
	"github.com/lockstile/locker/internal/guardtest"
)

func TestGuardKeepsTheContractOfGuards(t *testing.T) {
	_, rdb, _ := setUp(t)
	guardtest.Run(t, newGuard(t, rdb))
}

func TestReadIsOneStepWithItsCheck(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	if _, err := g.Do(ctx, "k", 4, "HSET", "balance", 4); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"HGET", "hget"} {
		if reply, err := g.Read(ctx, "k", 5, command, "balance"); err != nil || reply != "4" {
			t.Errorf("a read: %v, %v", reply, err)
		}
	}
	if _, err := g.Do(ctx, "k", 4, "HSET", "balance", 0); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("an earlier holder's write: %v", err)
	}
	if _, err := g.Do(ctx, "k", 6, "HSET", "balance", 6); err != nil {
		t.Fatal(err)
	}
	_, err := g.Read(ctx, "k", 5, "HGET", "balance")
	var stale *fencing.StaleError
	if !errors.As(err, &stale) || *stale != (fencing.StaleError{Resource: "k", Token: 5, Seen: 6, Reader: true}) {
		t.Errorf("a read after a later write: %v", err)
	}
	if _, err := g.Read(ctx, "k", 0, "HGET", "balance"); !errors.Is(err, fencing.ErrZeroToken) {
		t.Errorf("a read with zero: %v", err)
	}
	if reply, err := g.Read(ctx, "k", 7, "HGETALL"); err != nil || !slices.Equal(reply.([]any), []any{"balance", "6"}) {
		t.Errorf("a reply of several: %v, %v", reply, err)
	}
	srv.Do("SET", "large", "0")
	srv.Do("SETBIT", "large", "0", "1")
	if _, err := g.Read(ctx, "large", 1, "BITFIELD_RO", "GET", "i64", 0); !errors.Is(err, redisfence.ErrInexact) {
		t.Errorf("a reply that a script rounds: %v", err)
	}
}

// Goal: what a reader sends writes nothing, and leaves no number where it is refused.
func TestReadWithACommandThatWritesIsRefused(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	srv.Do("SET", "k", "old")
	for _, c := range [][]any{
		{"SET", "new"}, {"set", "new"}, {"DEL"}, {"GETDEL"}, {"GETEX", "PX", 1}, {"APPEND", "x"}, {"SORT"}, {"EXPIRE", 1}, {"PUBLISH", "x"},
		{"EVAL", 0}, {"OBJECT", "ENCODING"}, {"NOSUCHCOMMAND"}, {"CONFIG"}, {"*"}, {""}, {"FLUSHALL"}, {"GET", "lockstile:f:{x}"},
	} {
		if _, err := g.Read(ctx, "k", 5, c[0].(string), c[1:]...); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%v: %v", c, err)
		}
	}
	_, err := g.Read(ctx, "k", 5, "SET", "new")
	if err == nil || !strings.Contains(err.Error(), "SET is not a command that only reads") {
		t.Errorf("the error is %v", err)
	}
	if _, err := g.Read(ctx, "lockstile:f:{x}", 5, "GET"); err == nil {
		t.Error("the guard's own key was read")
	}
	if got := srv.Do("KEYS", "*"); got != "k" || srv.Do("GET", "k") != "old" {
		t.Errorf("after it there is %q, with %q", got, srv.Do("GET", "k"))
	}
}

// Goal: a key that was guarded before there were readers still is.
func TestTokenFromBeforeThereWereReadersCounts(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	srv.Do("SET", "lockstile:f:{k}", "00000000000000000034")
	if err := g.CheckShared(ctx, "k", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale reader: %v", err)
	}
	if err := g.Check(ctx, "k", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale writer: %v", err)
	}
	if err := g.CheckShared(ctx, "k", 35); err != nil {
		t.Errorf("a reader: %v", err)
	}
}

func TestReaderWhoMayNotAskAboutCommandsIsToldWhichRightIsMissing(t *testing.T) {
	srv, _, ctx := setUp(t)
	rights := []string{"ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "+eval", "+evalsha", "+get", "+set"}
	srv.Do(rights...)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"})
	t.Cleanup(func() { _ = rdb.Close() })
	g := newGuard(t, rdb)
	if _, err := g.Do(ctx, "k", 4, "SET", "v"); err != nil {
		t.Errorf("a write: %v", err)
	}
	if _, err := g.Read(ctx, "k", 5, "GET"); err == nil || !strings.Contains(err.Error(), "+command|info") {
		t.Errorf("a read: %v", err)
	}
	srv.Do(append(rights, "+command|info")...)
	if reply, err := g.Read(ctx, "k", 5, "GET"); err != nil || reply != "v" {
		t.Errorf("a read: %v, %v", reply, err)
	}
}
