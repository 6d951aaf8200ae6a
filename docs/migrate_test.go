package docs_test

import (
	"testing"

	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/postgres"
)

// All replicas wait for the lock before any of them gets it: the test has it.
func TestOneReplicaMigratesAndTheOthersFindItDone(t *testing.T) {
	t.Parallel()
	url, db := database(t)
	mustExec(t, db, postgres.Schema)
	tx, err := db.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.LockTx(soon(t), tx, "schema"); err != nil {
		t.Fatal(err)
	}
	const replicas = 5
	var all []*process.Process
	for range replicas {
		all = append(all, start(t, []string{"DATABASE_URL=" + url}, "migrate"))
	}
	all[0].Wait("all wait for the lock", func() bool {
		return number(t, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1`) == replicas
	})
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		p.Ends(0)
	}
	if did, found := total(all, "migrated from version 0 to 3"), total(all, "the schema has version 3"); did != 1 || found != replicas-1 {
		t.Errorf("%d replicas have migrated, %d have found it done", did, found)
	}
	if n := number(t, db, `SELECT count(*) FROM customer`); n != 1 {
		t.Errorf("the migration has made %d customers", n)
	}
}
