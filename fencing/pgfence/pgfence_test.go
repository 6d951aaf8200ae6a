package pgfence_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/pgfence"
	"github.com/lockstile/locker/internal/testserver"
)

func connect(t *testing.T) (*pgxpool.Pool, *sql.DB) {
	t.Helper()
	url := testserver.Postgres(t).URL("postgres")
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for range 2 {
		if _, err := pool.Exec(context.Background(), pgfence.Schema); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return pool, db
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestStaleTokensAreRefusedThroughEitherDriver(t *testing.T) {
	t.Parallel()
	pool, db := connect(t)
	for name, guard := range map[string]*pgfence.Guard{"pgx": pgfence.NewGuard(pool), "sql": pgfence.NewSQLGuard(db)} {
		resource := "it's \"" + name + "\""
		for _, c := range []struct{ token, seen fencing.Token }{
			{5, 5}, {5, 5}, {4, 5}, {6, 6}, {math.MaxInt64 + 1, math.MaxInt64 + 1}, {math.MaxUint64, math.MaxUint64}, {7, math.MaxUint64},
		} {
			err := guard.Check(soon(t), resource, c.token)
			var stale *fencing.StaleError
			switch {
			case c.token == c.seen && err != nil:
				t.Errorf("%s: %d is refused: %v", name, c.token, err)
			case c.token < c.seen && (!errors.As(err, &stale) || stale.Seen != c.seen || stale.Token != c.token || stale.Resource != resource):
				t.Errorf("%s: %d after %d: %v", name, c.token, c.seen, err)
			}
		}
		if err := guard.Check(soon(t), "another "+name, 1); err != nil {
			t.Errorf("%s: resources are not apart: %v", name, err)
		}
	}
}

func TestZeroTokenIsRefusedAndWritesNothing(t *testing.T) {
	t.Parallel()
	pool, db := connect(t)
	for name, guard := range map[string]*pgfence.Guard{"pgx": pgfence.NewGuard(pool), "sql": pgfence.NewSQLGuard(db)} {
		if err := guard.Check(soon(t), "r", 0); !errors.Is(err, fencing.ErrZeroToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var rows int
	if err := pool.QueryRow(soon(t), `SELECT count(*) FROM lockstile_fence`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("after it there are %d rows, %v", rows, err)
	}
}

// Goal: the application's other transactions wait for the disk as it has set it.
func TestCheckLeavesTheSessionsSettingsAlone(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t).URL("postgres")
	apply(t, open(t, url), pgfence.Schema)
	pool := open(t, url+"&pool_max_conns=1&synchronous_commit=off")
	guard := pgfence.NewGuard(pool)
	for what, err := range map[string]error{"writer": guard.Check(soon(t), "a", 5), "reader": guard.CheckShared(soon(t), "a", 6)} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	var now string
	if err := pool.QueryRow(soon(t), `SHOW synchronous_commit`).Scan(&now); err != nil || now != "off" {
		t.Errorf("synchronous_commit was off, and is %s (%v)", now, err)
	}
}

func TestTokenIsForgottenWithItsTransaction(t *testing.T) {
	t.Parallel()
	pool, db := connect(t)
	tx, err := db.BeginTx(soon(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := pgfence.NewSQLGuard(tx).Check(soon(t), "a", 9); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := pgfence.NewGuard(pool).Check(soon(t), "a", 8); err != nil {
		t.Errorf("the token of a transaction that was rolled back is remembered: %v", err)
	}
}

// Goal: nothing comes between a check and the writes of its transaction. Method:
// a greater token arrives between them. It has to wait, or the smaller one's
// write would come after it.
func TestCheckHoldsTheResourceUntilTheTransactionEnds(t *testing.T) {
	t.Parallel()
	for _, start := range []fencing.Token{0, 1} { // a resource that nobody has seen, and one that has a row
		pool, _ := connect(t)
		if start > 0 {
			if err := pgfence.NewGuard(pool).Check(soon(t), "a", start); err != nil {
				t.Fatal(err)
			}
		}
		tx, err := pool.Begin(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := pgfence.NewGuard(tx).Check(soon(t), "a", 5); err != nil {
			t.Fatal(err)
		}
		later := make(chan error, 1)
		go func() { later <- pgfence.NewGuard(pool).Check(soon(t), "a", 6) }()
		waits(t, pool, later)
		if err := tx.Commit(soon(t)); err != nil {
			t.Fatal(err)
		}
		if err := <-later; err != nil {
			t.Errorf("the greater token was refused: %v", err)
		}
		if err := pgfence.NewGuard(pool).Check(soon(t), "a", 5); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("the smaller token after it: %v", err)
		}
	}
}

// Goal: the comparison is with what is there once the row is ours, not with what
// was there when the statement began.
func TestStaleTokenThatWaitedForAGreaterOneIsRefused(t *testing.T) {
	t.Parallel()
	pool, _ := connect(t)
	tx, err := pool.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := pgfence.NewGuard(tx).Check(soon(t), "a", 6); err != nil {
		t.Fatal(err)
	}
	stale := make(chan error, 1)
	go func() { stale <- pgfence.NewGuard(pool).Check(soon(t), "a", 5) }()
	waits(t, pool, stale)
	if err := tx.Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-stale; !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale token that waited: %v", err)
	}
}

// waits returns when somebody waits for a row in the server.
func waits(t *testing.T, pool *pgxpool.Pool, result <-chan error) {
	t.Helper()
	for ctx := soon(t); ; {
		var n int
		if err := pool.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		select {
		case err := <-result:
			t.Fatalf("the other check did not wait: %v", err)
		default:
		}
	}
}

func TestErrorsOfTheStoreAreNoVerdict(t *testing.T) {
	t.Parallel()
	pool, _ := connect(t)
	err := pgfence.NewGuard(pool).Check(soon(t), "zero \x00 byte", 1)
	if err == nil || errors.Is(err, fencing.ErrStale) || strings.Contains(err.Error(), "apply Schema") {
		t.Errorf("a resource that the store cannot name: %v", err)
	}
	apply(t, pool, `INSERT INTO lockstile_fence VALUES ('by hand', 1::numeric(20) * 2 ^ 64, 0)`)
	if err := pgfence.NewGuard(pool).Check(soon(t), "by hand", 1); err == nil || errors.Is(err, fencing.ErrStale) {
		t.Errorf("a row that holds no token: %v", err)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(enough)
	if err := pgfence.NewGuard(pool).Check(ctx, "a", 1); !errors.Is(err, context.Canceled) || !errors.Is(err, enough) {
		t.Errorf("a context that is over: %v", err)
	}
}

func TestMissingTableSaysWhatToDo(t *testing.T) {
	t.Parallel()
	pool, db := connect(t)
	apply(t, pool, `DROP TABLE lockstile_fence`)
	for name, guard := range map[string]*pgfence.Guard{"pgx": pgfence.NewGuard(pool), "sql": pgfence.NewSQLGuard(db)} {
		for _, err := range []error{guard.Check(soon(t), "r", 1), guard.CheckShared(soon(t), "r", 1)} {
			if err == nil || !strings.Contains(err.Error(), "apply Schema of package pgfence") || strings.Contains(err.Error(), "%!") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Goal: a claim is refused or kept however its statement is sent, and by whatever role.
func TestStaleTokensAreRefusedInEveryModeOfSendingStatements(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	url := s.URL("postgres")
	pool := open(t, url)
	apply(t, pool, pgfence.Schema)
	apply(t, pool, `CREATE ROLE app LOGIN SUPERUSER`)
	apply(t, pool, `ALTER ROLE app SET default_transaction_isolation = serializable`)
	apply(t, pool, `ALTER ROLE app SET bytea_output = escape`)
	apply(t, pool, `CREATE ROLE reader LOGIN SUPERUSER`)
	apply(t, pool, `ALTER ROLE reader SET default_transaction_read_only = on`)
	urls := map[string]string{
		"app":       strings.Replace(url, "postgres@", "app@", 1),
		"PgBouncer": testserver.PgBouncer(t, s, "statement").URL("postgres") + "&default_query_exec_mode=exec",
	}
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		urls[mode] = url + "&default_query_exec_mode=" + mode
	}
	for resource, url := range urls {
		guard := pgfence.NewGuard(open(t, url))
		for _, token := range []fencing.Token{3, 5} {
			if err := guard.Check(soon(t), resource, token); err != nil {
				t.Errorf("%s: %d: %v", resource, token, err)
			}
		}
		if err := guard.Check(soon(t), resource, 4); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: 4 after 5: %v", resource, err)
		}
		for _, number := range []fencing.SharedToken{7, 6} { // one raises the mark, the other finds it high enough
			if err := guard.CheckShared(soon(t), resource, number); err != nil {
				t.Errorf("%s: reader %d: %v", resource, number, err)
			}
		}
		if err := guard.Check(soon(t), resource, 6); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: 6 after reader 7: %v", resource, err)
		}
		if err := guard.CheckShared(soon(t), resource, 4); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: reader 4 after 5: %v", resource, err)
		}
	}
	reader := pgfence.NewGuard(open(t, strings.Replace(url, "postgres@", "reader@", 1)))
	if err := reader.Check(soon(t), "app", 9); err == nil || errors.Is(err, fencing.ErrStale) {
		t.Errorf("in a session that is read-only: %v", err)
	}
}
