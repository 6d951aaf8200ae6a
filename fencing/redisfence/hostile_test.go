package redisfence_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/redisfence"
)

// Goal: no answer is no consent. Method: a pipeline, which is a redis.Scripter too,
// and answers nothing before it is carried out.
//
// Interleaving: 34 has written. 33 asks over a pipeline: the question is put aside,
// and what comes back says neither yes nor no.
func TestGuardThatWasNotAskedAcceptsNothing(t *testing.T) {
	_, rdb, ctx := setUp(t)
	if err := redisfence.NewGuard(rdb).Check(ctx, "k", 34); err != nil {
		t.Fatal(err)
	}
	for name, later := range map[string]redis.Scripter{"pipeline": rdb.Pipeline(), "transaction": rdb.TxPipeline()} {
		if err := redisfence.NewGuard(later).Check(ctx, "k", 33); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: Check: %v", name, err)
		}
		if _, err := redisfence.NewGuard(later).Do(ctx, "k", 33, "SET", "old"); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: Do: %v", name, err)
		}
		if token, err := redisfence.NewCounter(later).Next(ctx, "k"); err == nil {
			t.Errorf("%s: Next: %d", name, token)
		}
	}
}

// Goal: what the guard remembers of one key is not written over under another.
//
// Interleaving: 34 has written "k". Whoever chooses keys writes the one in which
// that is remembered; 33 comes late.
func TestGuardsOwnKeysAreNotWritten(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := redisfence.NewGuard(rdb)
	if _, err := g.Do(ctx, "k", 34, "SET", "new"); err != nil {
		t.Fatal(err)
	}
	for _, own := range []string{"lockstile:f:{k}", "lockstile:f:x"} {
		if _, err := g.Do(ctx, own, 1, "SET", "0"); err == nil {
			t.Errorf("%q is written", own)
		}
	}
	if _, err := g.Do(ctx, "k", 33, "SET", "old"); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale write: %v", err)
	}
	if got := srv.Do("GET", "k"); got != "new" {
		t.Errorf("the stale write got in: %q", got)
	}
}
