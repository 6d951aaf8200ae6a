package postgres_test

import (
	"strings"
	"testing"

	"github.com/lockstile/locker/postgres"
)

// Goal: a schema of an earlier version is refused in words that say what to do,
// and tokens go on from its sequence.
func TestSchemaOfAnEarlierVersionIsRefusedUntilItsTableIsDropped(t *testing.T) {
	for _, table := range []string{
		`CREATE TABLE lockstile_lock (name text, session boolean, PRIMARY KEY (name, session))`,
		`CREATE TABLE lockstile_lock (name text, session boolean, PRIMARY KEY (name, session)) PARTITION BY LIST (session)`,
	} {
		url := database(t)
		admin := connect(t, url)
		exec(t, admin, `CREATE SEQUENCE lockstile_token`)
		exec(t, admin, table)
		old := query[int64](t, admin, `SELECT setval('lockstile_token', 5000000)`)
		l, err := postgres.New(admin, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.EnsureSchema(soon(t)); err == nil || !strings.Contains(err.Error(), "drop it when nobody holds a lock") {
			t.Errorf("EnsureSchema over an earlier version: %v", err)
		}
		exec(t, admin, `DROP TABLE lockstile_lock`)
		held := lock(t, ready(t, l, nil), "a")
		if int64(held.Token()) <= old {
			t.Errorf("token %d follows %d", held.Token(), old)
		}
		unlock(t, held)
	}
}

// Goal: a sequence that somebody drops does not begin again in the block that was
// in use.
func TestSequenceThatWasMadeAgainBeginsAnotherBlock(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	admin := connect(t, url)
	var last int64
	for range 3 {
		last = query[int64](t, admin, draw)
	}
	exec(t, admin, `DROP SEQUENCE lockstile_quick`)
	if err := l.EnsureSchema(soon(t)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		next := query[int64](t, admin, draw)
		if next <= last {
			t.Errorf("token %d follows %d", next, last)
		}
		last = next
	}
}
