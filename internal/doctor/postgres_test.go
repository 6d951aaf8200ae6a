package doctor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing/pgfence"
	"github.com/lockstile/locker/internal/doctor"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

// prepared is the URL of a database that has the schema.
func prepared(t *testing.T, url string) string {
	t.Helper()
	b, err := open.URL(patience(t), url+"&schema=ensure")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return url
}

func sql(t *testing.T, s *testserver.PostgresServer, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(patience(t), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(patience(t))
	for _, statement := range statements {
		if _, err := conn.Exec(patience(t), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func TestSanePostgresIsFine(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	url := prepared(t, srv.URL("postgres"))
	for _, mode := range []string{"", "&pool_max_conns=1", "&no_standby=true", "&mode=session"} {
		fine(t, examine(t, url+mode+"&application_name=examiner"), "version", "fsync", "standbys", "schema", "sequence", "rights", "isolation")
	}
	becomes(t, srv, `SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'examiner'`, "0")
}

// One setting at a time is changed for the role, and put back.
func TestSettingsOfPostgresThatHarmLocks(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "full_page_writes=off")
	url := prepared(t, srv.URL("postgres"))
	r := examine(t, url+"&sync_standby=true")
	finds(t, r, "postgres-crash", "fsync is off")
	finds(t, r, "postgres-crash", "full_page_writes is off")
	finds(t, r, "postgres-unsynced")
	findsNot(t, r, "postgres-isolation")
	sql(t, srv, `ALTER ROLE postgres SET default_transaction_isolation = 'serializable'`)
	finds(t, examine(t, url), "postgres-isolation", "serializable")
}

func TestReadOnlyTransactionsAreADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	url := prepared(t, srv.URL("postgres"))
	sql(t, srv, `CREATE ROLE app LOGIN SUPERUSER`, `ALTER ROLE app SET default_transaction_read_only = on`)
	finds(t, examine(t, strings.Replace(url, "postgres@", "app@", 1)), "postgres-read-only")
	findsNot(t, examine(t, url), "postgres-read-only")
}

// An old snapshot is seen whoever keeps it: a transaction that reads, one that has written,
// and one that is prepared. Method: more transactions than count as few.
func TestOldSnapshotsAreNoted(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on", "max_prepared_transactions=5")
	url := prepared(t, srv.URL("postgres"))
	conn, err := pgx.Connect(patience(t), srv.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(patience(t))
	pass := []string{`SET synchronous_commit = off`, `DO $$ BEGIN FOR i IN 1..100010 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`}
	findsNot(t, examine(t, url), "postgres-old-snapshot")
	process := fmt.Sprint("the process ", conn.PgConn().PID(), " ")
	for _, c := range []struct{ who, begin, end string }{
		{process, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`, `COMMIT`},
		{process, `BEGIN; SELECT pg_current_xact_id()`, `COMMIT`},
		{"the prepared transaction p ", `BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'p'`, `ROLLBACK PREPARED 'p'`},
	} {
		if _, err := conn.Exec(patience(t), c.begin); err != nil {
			t.Fatal(err)
		}
		sql(t, srv, pass...)
		finds(t, examine(t, url), "postgres-old-snapshot", c.who)
		if _, err := conn.Exec(patience(t), c.end); err != nil {
			t.Fatal(err)
		}
		findsNot(t, examine(t, url), "postgres-old-snapshot")
	}
}

func TestLockTableThatFillsIsADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on", "max_locks_per_transaction=10", "max_connections=20")
	url := prepared(t, srv.URL("postgres"))
	conn, err := pgx.Connect(patience(t), srv.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(patience(t))
	fine(t, examine(t, url), "lock table")
	if _, err := conn.Exec(patience(t), `SELECT pg_advisory_lock(i) FROM generate_series(1, 101) i`); err != nil {
		t.Fatal(err)
	}
	finds(t, examine(t, url), "postgres-lock-table", "of the 200 locks")
}

func TestSchemaThatIsAnotherIsADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	url := prepared(t, srv.URL("postgres"))
	sql(t, srv, `DROP FUNCTION lockstile_inspect_5, lockstile_session_inspect_5`,
		`CREATE OR REPLACE FUNCTION lockstile_version() RETURNS integer LANGUAGE sql AS 'SELECT 1000'`)
	finds(t, examine(t, url), "postgres-schema", "version 1000")
	finds(t, examine(t, url+"&mode=session"), "postgres-schema", "version 1000")
	sql(t, srv, `DROP FUNCTION lockstile_version`)
	finds(t, examine(t, url), "postgres-schema", "call EnsureSchema")
}

func TestSequenceAndRightsThatAreNotAsTheSchemaAsksAreADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	url := prepared(t, srv.URL("postgres"))
	for change, back := range map[string]string{"CACHE 20": "CACHE 1", "SET UNLOGGED": "SET LOGGED", "CYCLE": "NO CYCLE", "INCREMENT 2": "INCREMENT 1"} {
		sql(t, srv, `ALTER SEQUENCE lockstile_token `+change)
		finds(t, examine(t, url), "postgres-sequence")
		sql(t, srv, `ALTER SEQUENCE lockstile_token `+back)
	}
	sql(t, srv, `CREATE ROLE app LOGIN`)
	r := examine(t, strings.Replace(url, "postgres@", "app@", 1)) // which has no right at all
	finds(t, r, "postgres-rights", "on lockstile_drawn, lockstile_known, lockstile_lease, lockstile_mark, lockstile_queue, lockstile_session, lockstile_token")
	findsNot(t, r, "postgres-schema")
	sql(t, srv, `GRANT SELECT, INSERT, UPDATE ON lockstile_lease, lockstile_queue TO app`,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON lockstile_session, lockstile_known, lockstile_drawn, lockstile_mark TO app`, `GRANT SELECT ON SEQUENCE lockstile_token TO app`)
	app := strings.Replace(url, "postgres@", "app@", 1)
	finds(t, examine(t, app), "postgres-rights", "on lockstile_lease, lockstile_queue, lockstile_token")
	for _, right := range []string{"INSERT", "UPDATE", "DELETE"} {
		for _, table := range []string{"lease", "queue", "mark", "session", "known", "drawn"} {
			sql(t, srv, `GRANT INSERT, UPDATE, DELETE ON lockstile_lease, lockstile_queue TO app`, `REVOKE `+right+` ON lockstile_`+table+` FROM app`)
			finds(t, examine(t, app), "postgres-rights", "on lockstile_"+table+", lockstile_token")
			sql(t, srv, `GRANT `+right+` ON lockstile_`+table+` TO app`)
		}
	}
	sql(t, srv, `GRANT DELETE ON lockstile_lease, lockstile_queue TO app`, `GRANT USAGE ON SEQUENCE lockstile_token TO app`)
	r = examine(t, app)
	findsNot(t, r, "postgres-rights")
	finds(t, r, "unseen", "snapshots")
	sql(t, srv, `GRANT pg_read_all_stats TO app`)
	fine(t, examine(t, app), "rights")
	sql(t, srv, `DROP SEQUENCE lockstile_token`)
	finds(t, examine(t, url), "postgres-sequence")
}

// One of the questions that are asked after the database was opened is refused.
func TestDatabaseThatDoesNotAnswerAQuestionIsAnError(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	app := strings.Replace(prepared(t, srv.URL("postgres")), "postgres@", "app@", 1)
	sql(t, srv, `CREATE ROLE app LOGIN`, `GRANT ALL ON ALL TABLES IN SCHEMA public TO app`, `GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app`)
	examine(t, app)
	for _, function := range []string{"pg_is_in_recovery()", "pg_has_role(name, text)", "has_table_privilege(oid, text)"} {
		sql(t, srv, `REVOKE EXECUTE ON FUNCTION `+function+` FROM public`)
		name, _, _ := strings.Cut(function, "(")
		if _, err := doctor.Examine(patience(t), app); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", function, err)
		}
		sql(t, srv, `GRANT EXECUTE ON FUNCTION `+function+` TO public`)
	}
}

func TestPoolerInBetweenIsADangerToSessions(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	prepared(t, srv.URL("postgres"))
	for _, mode := range []string{"transaction", "session"} {
		url := testserver.PgBouncer(t, srv, mode).URL("postgres")
		fine(t, examine(t, url))
		finds(t, examine(t, url+"&mode=session"), "postgres-pooler")
	}
}

// The tables are what is missing, and not all that is to be known.
func TestDatabaseWithoutTablesIsLookedAtAllTheSame(t *testing.T) {
	t.Parallel()
	r := examineInVain(t, testserver.Postgres(t).URL("postgres"), "no tables for locks")
	finds(t, r, "postgres-crash", "fsync")
	finds(t, r, "postgres-schema")
}

// Whoever may create something in a schema in which names are found could put a table or a function
// in the place of the locks' own. Method: a right at a time, in the locks' schema and in one that
// the search path has before or behind it.
func TestThatOthersMayCreateInTheSchemaIsADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	url := prepared(t, srv.URL("postgres"))
	sql(t, srv, `CREATE ROLE stranger`, `CREATE ROLE app LOGIN`, `CREATE SCHEMA before`, `CREATE SCHEMA behind`, `GRANT USAGE ON SCHEMA before TO app`, `GRANT pg_read_all_stats TO app`,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON lockstile_lease, lockstile_queue, lockstile_mark, lockstile_session, lockstile_known, lockstile_drawn TO app`,
		`GRANT SELECT, USAGE ON SEQUENCE lockstile_token TO app`, `GRANT CREATE ON SCHEMA public TO app`)
	app := strings.Replace(url, "postgres@", "app@", 1) + "&search_path=before,public,behind"
	findsNot(t, examine(t, app), "postgres-strangers")
	for _, c := range []struct{ give, take, says string }{
		{`GRANT CREATE ON SCHEMA public TO PUBLIC`, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`, "everybody (PUBLIC) in the schema public"},
		{`GRANT CREATE ON SCHEMA before TO stranger`, `REVOKE CREATE ON SCHEMA before FROM stranger`, "stranger in the schema before"},
		{`ALTER SCHEMA before OWNER TO stranger`, `ALTER SCHEMA before OWNER TO postgres`, "stranger in the schema before"},
		{`GRANT CREATE ON SCHEMA behind TO stranger`, `REVOKE CREATE ON SCHEMA behind FROM stranger`, ""},
		{`ALTER TABLE lockstile_queue OWNER TO stranger`, `ALTER TABLE lockstile_queue OWNER TO postgres`, "stranger, who owns lockstile_queue"},
		{`CREATE TABLE lockstile_other (a int) PARTITION BY RANGE (a); ALTER TABLE lockstile_other OWNER TO stranger`, `DROP TABLE lockstile_other`, "stranger, who owns lockstile_other"},
		{`ALTER FUNCTION lockstile_version OWNER TO stranger`, `ALTER FUNCTION lockstile_version OWNER TO postgres`, "stranger, who owns public.lockstile_version()"},
	} {
		sql(t, srv, c.give)
		if r := examine(t, app); c.says == "" {
			findsNot(t, r, "postgres-strangers")
		} else {
			finds(t, r, "postgres-strangers", c.says)
		}
		sql(t, srv, c.take)
	}
	findsNot(t, examine(t, app), "postgres-strangers")
}

// The doctor calls no stranger's function either. Method: see [testserver.HostileSchema].
func TestDoctorFindsNothingThroughTheSearchPath(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	sql(t, srv, testserver.HostileSchema)
	url := prepared(t, srv.URL("postgres")+"&search_path=hostile,pg_catalog")
	for _, mode := range []string{"", "&mode=session", "&default_query_exec_mode=simple_protocol"} {
		fine(t, examine(t, url+mode), "schema", "sequence", "rights")
	}
	becomes(t, srv, `SELECT is_called::text FROM hostile.called`, "false")
}

// An upgrade by logical replication copies no sequences. Method: a sequence that is set back, behind
// what is noted, behind a lease, and behind what a guard has seen.
func TestSequenceThatHasGoneBackIsADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on")
	url := prepared(t, srv.URL("postgres"))
	fine(t, examine(t, url), "sequence")
	sql(t, srv, `SELECT setval('lockstile_token', 4999)`, `INSERT INTO lockstile_drawn VALUES (5000)`)
	finds(t, examine(t, url), "postgres-sequence-back", "it is at 4999, and the number 5000")
	sql(t, srv, `SELECT setval('lockstile_token', 5000)`)
	fine(t, examine(t, url), "sequence")
	sql(t, srv, `INSERT INTO lockstile_lease VALUES ('a', 'x', false, 5001 * 1024, '', now())`)
	finds(t, examine(t, url), "postgres-sequence-back", "it is at 5000, and the number 5001")
	prepared(t, url) // it is lifted
	fine(t, examine(t, url), "sequence")
	sql(t, srv, pgfence.Schema, `INSERT INTO lockstile_fence VALUES ('a', (SELECT last_value FROM lockstile_token) * 1024 + 1023, 0)`)
	fine(t, examine(t, url), "sequence")
	sql(t, srv, `UPDATE lockstile_fence SET token = token + 1`)
	finds(t, examine(t, url), "postgres-guard-ahead", "which is greater")
}
