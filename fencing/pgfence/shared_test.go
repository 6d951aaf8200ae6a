package pgfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/pgfence"
	"github.com/lockstile/locker/internal/guardtest"
	"github.com/lockstile/locker/internal/testserver"
)

func TestGuardKeepsTheContractOfGuards(t *testing.T) {
	t.Parallel()
	pool, db := connect(t)
	guardtest.Run(t, pgfence.NewGuard(pool))
	guardtest.Run(t, pgfence.NewSQLGuard(db))
}

func begin(t *testing.T, pool interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // where the test has not ended it
	return tx
}

// Goal: readers that have claimed a resource go on side by side in their transactions, and a
// writer's check waits for all of them. Method: a later reader has the mark, so that the
// rows of the others are as they were.
func TestTransactionsOfReadersGoOnSideBySideAndAWriterWaitsForThem(t *testing.T) {
	t.Parallel()
	pool, db := connect(t)
	var readers []pgx.Tx
	for _, number := range []fencing.SharedToken{5, 6, 7} {
		if err := pgfence.NewGuard(pool).CheckShared(soon(t), "a", number); err != nil {
			t.Fatal(err)
		}
	}
	for _, number := range []fencing.SharedToken{6, 5, 7} {
		tx := begin(t, pool)
		if err := pgfence.NewGuard(tx).CheckShared(soon(t), "a", number); err != nil {
			t.Fatal(err)
		}
		readers = append(readers, tx)
	}
	later := make(chan error, 1)
	go func() { later <- pgfence.NewSQLGuard(db).Check(soon(t), "a", 8) }()
	for i, tx := range readers {
		waits(t, pool, later)
		if err := tx.Commit(soon(t)); err != nil {
			t.Errorf("reader %d: %v", i, err)
		}
	}
	if err := <-later; err != nil {
		t.Errorf("the writer: %v", err)
	}
	if err := pgfence.NewGuard(pool).CheckShared(soon(t), "a", 7); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a reader after it: %v", err)
	}
}

// Goal: two readers that both raise the mark wait for one another in turn, and not each for
// the other.
//
// Interleaving: both have claimed nothing. The first checks in its transaction, the second
// waits in its own; the first commits, the second goes on. Likewise where there is a row, and
// where the second has the smaller number: when it began, the mark was under that.
func TestReadersThatRaiseTheMarkInTheirTransactionsGoOneAfterAnother(t *testing.T) {
	t.Parallel()
	pool, _ := connect(t)
	for _, c := range []struct{ first, second, write uint64 }{{1, 2, 1}, {3, 4, 3}, {9, 8, 8}} {
		one, two := begin(t, pool), begin(t, pool)
		if err := pgfence.NewGuard(one).CheckShared(soon(t), "a", fencing.SharedToken(c.first)); err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() { second <- pgfence.NewGuard(two).CheckShared(soon(t), "a", fencing.SharedToken(c.second)) }()
		waits(t, pool, second)
		for _, end := range []func() error{
			func() error { return one.Commit(soon(t)) },
			func() error { return <-second },
			func() error { return two.Commit(soon(t)) },
		} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
		if err := pgfence.NewGuard(pool).Check(soon(t), "a", fencing.Token(c.write)); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("a write before one of %+v: %v", c, err)
		}
	}
}

// Goal: a reader compares with what is there once the row is its own, also where it finds
// its mark in place.
//
// Interleaving: a reader has claimed. A later writer checks in its transaction; the reader
// checks again, and waits; the writer commits.
func TestReaderThatWaitedForAWriterIsRefused(t *testing.T) {
	t.Parallel()
	for _, number := range []fencing.SharedToken{4, 5} { // 5 has its mark; 4 as well, for 5 is greater
		pool, _ := connect(t)
		if err := pgfence.NewGuard(pool).CheckShared(soon(t), "a", 5); err != nil {
			t.Fatal(err)
		}
		writer := begin(t, pool)
		if err := pgfence.NewGuard(writer).Check(soon(t), "a", 6); err != nil {
			t.Fatal(err)
		}
		stale := make(chan error, 1)
		go func() { stale <- pgfence.NewGuard(pool).CheckShared(soon(t), "a", number) }()
		waits(t, pool, stale)
		if err := writer.Commit(soon(t)); err != nil {
			t.Fatal(err)
		}
		if err := <-stale; !errors.Is(err, fencing.ErrStale) {
			t.Errorf("reader %d: %v", number, err)
		}
	}
}

// Goal: a reader's claim that is refused, or kept, is so after a crash, also in a session
// that does not wait for the disk.
func TestReadersClaimOutlastsACrash(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, "wal_writer_delay=10000", "wal_writer_flush_after=0")
	url := server.URL("postgres")
	apply(t, open(t, url), pgfence.Schema)
	if err := pgfence.NewGuard(open(t, url+"&synchronous_commit=off")).CheckShared(soon(t), "a", 6); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Start()
	if err := pgfence.NewGuard(open(t, url)).Check(soon(t), "a", 5); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("an earlier write after the crash: %v", err)
	}
}

// former is the table of the first layout, and what its programs ask.
const former = `CREATE TABLE lockstile_fence (resource text COLLATE "C" PRIMARY KEY, token numeric(20) NOT NULL)`

const formerCheck = `
INSERT INTO lockstile_fence AS f (resource, token) VALUES (convert_from($1::bytea, 'UTF8'), CAST($2 AS numeric))
ON CONFLICT (resource) DO UPDATE SET token = greatest(f.token, excluded.token)
RETURNING f.token::text`

// Goal: a table of the first layout is refused until Schema is applied, keeps its tokens
// then, and takes nothing more from programs that know no readers.
func TestTableOfTheFirstLayoutIsExtendedBySchema(t *testing.T) {
	t.Parallel()
	pool := open(t, testserver.Postgres(t).URL("postgres"))
	apply(t, pool, former)
	var seen string
	if err := pool.QueryRow(soon(t), formerCheck, []byte("a"), "34").Scan(&seen); err != nil {
		t.Fatal(err)
	}
	guard := pgfence.NewGuard(pool)
	for what, err := range map[string]error{"Check": guard.Check(soon(t), "a", 35), "CheckShared": guard.CheckShared(soon(t), "a", 35)} {
		if err == nil || !strings.Contains(err.Error(), "apply Schema of package pgfence") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 2 {
		apply(t, pool, pgfence.Schema)
	}
	if err := guard.Check(soon(t), "a", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("an earlier write: %v", err)
	}
	if err := guard.CheckShared(soon(t), "a", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("an earlier read: %v", err)
	}
	if err := guard.CheckShared(soon(t), "a", 36); err != nil {
		t.Errorf("a later read: %v", err)
	}
	for _, resource := range []string{"a", "new"} {
		if err := pool.QueryRow(soon(t), formerCheck, []byte(resource), "35").Scan(&seen); err == nil {
			t.Errorf("a program of the first layout wrote to %q", resource)
		}
	}
}

// Goal: the schema, applied again, waits for nobody. Method: a transaction that holds a
// resource goes on meanwhile.
func TestSchemaAppliedAgainDoesNotWaitForHolders(t *testing.T) {
	t.Parallel()
	pool, _ := connect(t)
	tx := begin(t, pool)
	if err := pgfence.NewGuard(tx).CheckShared(soon(t), "a", 5); err != nil {
		t.Fatal(err)
	}
	apply(t, pool, pgfence.Schema)
}
