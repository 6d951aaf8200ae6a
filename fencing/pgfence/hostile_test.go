package pgfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/pgfence"
	"github.com/lockstile/locker/internal/testserver"
)

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func apply(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(soon(t), sql); err != nil {
		t.Fatal(err)
	}
}

// Goal: what a claim refused before a crash it refuses after it. Method: a session
// that does not wait for the disk, and a server that writes only what it must.
//
// Interleaving: 6 claims the resource and reads it, the server crashes, 5 comes
// late and writes, 6 writes what it has computed.
func TestClaimOutlastsACrash(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, "wal_writer_delay=10000", "wal_writer_flush_after=0")
	url := server.URL("postgres")
	apply(t, open(t, url), pgfence.Schema)
	if err := pgfence.NewGuard(open(t, url+"&synchronous_commit=off")).Check(soon(t), "a", 6); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Start()
	if err := pgfence.NewGuard(open(t, url)).Check(soon(t), "a", 5); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a smaller token after the crash: %v", err)
	}
}

// Goal: one resource has one row. Method: a session in another encoding, in which
// the bytes of its name are other characters. No interleaving is needed.
func TestResourceIsTheSameInEveryEncoding(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	url := server.URL("postgres")
	apply(t, open(t, url), pgfence.Schema)
	if err := pgfence.NewGuard(open(t, url)).Check(soon(t), "ü", 6); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"&client_encoding=LATIN1", "&client_encoding=SQL_ASCII", "&default_query_exec_mode=simple_protocol"} {
		if err := pgfence.NewGuard(open(t, url+other)).Check(soon(t), "ü", 5); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: a smaller token: %v", other, err)
		}
	}
	for _, text := range []string{"a\x00", "a\xff"} {
		if err := pgfence.NewGuard(open(t, url)).Check(soon(t), text, 1); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// Goal: guards of one search path use one table. Method: the schema is applied
// again by a role that got a schema of its own. No interleaving is needed: the
// second table would know of no token.
func TestSecondTableIsNotMadeUnasked(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	pool := open(t, server.URL("postgres"))
	apply(t, pool, pgfence.Schema)
	if err := pgfence.NewGuard(pool).Check(soon(t), "a", 6); err != nil {
		t.Fatal(err)
	}
	apply(t, pool, `CREATE SCHEMA postgres`)
	if _, err := pool.Exec(soon(t), pgfence.Schema); err == nil || !strings.Contains(err.Error(), "public") {
		t.Errorf("applying the schema: %v", err)
	}
	if err := pgfence.NewGuard(pool).Check(soon(t), "a", 5); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a smaller token: %v", err)
	}
}

// Goal: processes that start at once can all apply the schema.
//
// Interleaving: the second begins when the first has made the table and has not
// committed. It would wait for the name, and find it given away.
func TestSchemaIsAppliedByTwoProcessesAtOnce(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	pool := open(t, server.URL("postgres"))
	first, err := pool.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Exec(soon(t), pgfence.Schema); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		_, err := pool.Exec(soon(t), pgfence.Schema)
		second <- err
	}()
	waits(t, pool, second)
	if err := first.Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// Goal: no isolation level hides a greater token.
//
// Interleaving: the writer's transaction has its picture of the database, a greater
// token arrives and commits, the writer checks its own.
func TestNoIsolationLevelHidesAGreaterToken(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	pool := open(t, server.URL("postgres"))
	apply(t, pool, pgfence.Schema)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for name, start := range map[string]fencing.Token{"new " + string(level): 0, "known " + string(level): 1} {
			if start > 0 {
				if err := pgfence.NewGuard(pool).Check(soon(t), name, start); err != nil {
					t.Fatal(err)
				}
			}
			tx, err := pool.BeginTx(soon(t), pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(soon(t), `SELECT count(*) FROM lockstile_fence`); err != nil {
				t.Fatal(err)
			}
			if err := pgfence.NewGuard(pool).Check(soon(t), name, 6); err != nil {
				t.Fatal(err)
			}
			if err := pgfence.NewGuard(tx).Check(soon(t), name, 5); err == nil {
				t.Errorf("%s: the smaller token is accepted", name)
			}
			_ = tx.Rollback(soon(t))
		}
	}
}

// Goal: a claim that the standby does not have is none. Method: there is no standby, and a
// context ends. The pool is told to send a cancel request then, at which a server that waits
// for its standby answers as if the standby had it.
func TestAnswerToAClaimThatTheClientHasCancelledIsNone(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t, "synchronous_standby_names=nobody").URL("postgres")
	apply(t, open(t, url+"&synchronous_commit=local"), pgfence.Schema)
	config, err := pgxpool.ParseConfig(url + "&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Minute}
	}
	pool, err := pgxpool.NewWithConfig(soon(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	guard := pgfence.NewGuard(pool)
	readers := func(ctx context.Context) error { return guard.CheckShared(ctx, "b", 6) }
	for i, check := range []func(context.Context) error{
		func(ctx context.Context) error { return guard.Check(ctx, "a", 6) },
		readers,
		readers, // finds what the first has left in place
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := check(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("check %d: %v", i, err)
		}
	}
}

// Goal: a failover undoes no claim, whatever the role says. Method: a session that waits for
// the server's own disk alone, where a standby is declared that is not there. Whoever waits
// for it is seen to wait, and is told to stop.
//
// Interleaving: 6 claims the resource and reads it, the standby takes over, 5 comes late and
// writes, 6 writes what it has computed.
func TestClaimWaitsForTheStandbyWhateverTheRoleSays(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t, "synchronous_standby_names=nobody").URL("postgres") + "&synchronous_commit=local"
	admin := open(t, url)
	apply(t, admin, pgfence.Schema)
	guard := pgfence.NewGuard(open(t, url))
	readers := func() error { return guard.CheckShared(soon(t), "b", 6) }
	for i, check := range []func() error{
		func() error { return guard.Check(soon(t), "a", 6) },
		readers,
		readers, // finds what the first has left in place
	} {
		done := make(chan error, 1)
		go func() { done <- check() }()
		for waited, ended := false, false; !ended; {
			select {
			case err := <-done:
				if ended = true; err != nil || !waited {
					t.Errorf("check %d: it has waited for the standby: %t, %v", i, waited, err)
				}
			default:
				var waits bool
				if err := admin.QueryRow(soon(t), `SELECT coalesce(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&waits); err != nil {
					t.Fatal(err)
				}
				waited = waited || waits
			}
		}
	}
}

// Goal: nobody who may create something in a schema of the search path decides which token is
// stale. Method: a hostile version of all that the server has, which the search path has first,
// and in the same schema as the table; the table is made in it, and raised from its first layout.
//
// Interleaving: none is needed. The attacker makes convert_from of two texts, which is nearer to
// our call than the server's own, and returns another resource.
func TestNothingIsFoundThroughTheSearchPath(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t).URL("postgres")
	admin := open(t, url)
	apply(t, admin, testserver.HostileSchema)
	pool := open(t, url+"&search_path=hostile,pg_catalog")
	for _, before := range []string{``, `ALTER TABLE hostile.lockstile_fence DROP COLUMN shared`, ``} {
		if before != "" {
			apply(t, admin, before)
		}
		apply(t, pool, pgfence.Schema)
	}
	for what, g := range map[string]*pgfence.Guard{"pgx": pgfence.NewGuard(pool), "simple protocol": pgfence.NewGuard(open(t, url+"&search_path=hostile,pg_catalog&default_query_exec_mode=simple_protocol"))} {
		for _, token := range []fencing.Token{5, 34} {
			if err := g.Check(soon(t), what, token); err != nil {
				t.Error(err)
			}
		}
		if err := g.Check(soon(t), what, 33); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: 33 after 34: %v", what, err)
		}
		for _, number := range []fencing.SharedToken{35, 36, 35} {
			if err := g.CheckShared(soon(t), what, number); err != nil {
				t.Error(err)
			}
		}
		if err := g.CheckShared(soon(t), what, 33); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: the reader 33 after 34: %v", what, err)
		}
	}
	var called bool
	if err := admin.QueryRow(soon(t), `SELECT is_called FROM hostile.called`).Scan(&called); err != nil || called {
		t.Errorf("a hostile function was called: %v, %v", called, err)
	}
}

// Goal: a role that may not use the schema with the table makes no second one in another schema of the same
// search path. The server shows it nothing of the first.
func TestSecondTableIsNotMadeBehindASchemaThatTheRoleMayNotUse(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t).URL("postgres")
	admin := open(t, url)
	for _, sql := range []string{`CREATE SCHEMA first`, `CREATE SCHEMA app`, `CREATE ROLE app LOGIN`, `GRANT ALL ON SCHEMA app TO app`} {
		apply(t, admin, sql)
	}
	apply(t, open(t, url+"&search_path=first,app"), pgfence.Schema)
	_, err := open(t, strings.Replace(url, "postgres@", "app@", 1)+"&search_path=first,app").Exec(soon(t), pgfence.Schema)
	if err == nil || !strings.Contains(err.Error(), "schema first") {
		t.Errorf("a second table: %v", err)
	}
}
