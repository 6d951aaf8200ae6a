package doctor_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

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
	srv := testserver.Postgres(t, "fsync=on", "tcp_keepalives_idle=60")
	url := prepared(t, srv.URL("postgres"))
	for _, mode := range []string{"", "&mode=session"} {
		fine(t, examine(t, url+mode), "version", "fsync", "standbys", "no pooler", "schema", "sequence", "rights", "clock", "isolation")
	}
}

// One setting at a time is changed for the role, or the server, and put back.
func TestSettingsOfPostgresThatHarmLocks(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "tcp_keepalives_idle=7200")
	url := prepared(t, srv.URL("postgres"))
	r := examine(t, url)
	finds(t, r, doctor.Danger, "fsync is off")
	finds(t, r, doctor.Note, "tcp_keepalives_idle")
	for _, c := range []struct {
		setting  string
		severity doctor.Severity
		word     string
	}{
		{"synchronous_commit = off", doctor.Note, "synchronous_commit is off"},
		{"synchronous_commit = local", doctor.Note, "synchronous_commit is local"},
		{"idle_session_timeout = 3000", doctor.Note, "idle for 3s"},
		{"default_transaction_isolation = 'serializable'", doctor.Danger, "serializable"},
		{"default_transaction_read_only = on", doctor.Danger, "read-only"},
	} {
		name, _, _ := strings.Cut(c.setting, " ")
		findsNot(t, r, c.word)
		sql(t, srv, "ALTER ROLE postgres SET "+c.setting)
		finds(t, examine(t, url), c.severity, c.word)
		sql(t, srv, "SET default_transaction_read_only = off", "ALTER ROLE postgres RESET "+name)
	}
	findsNot(t, r, "sync_standby")
	finds(t, examine(t, url+"&sync_standby=true"), doctor.Danger, "sync_standby is set")
}

func TestSchemaThatIsAnotherIsADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on", "tcp_keepalives_idle=60")
	url := prepared(t, srv.URL("postgres"))
	sql(t, srv, `CREATE OR REPLACE FUNCTION lockstile_alive(_channel text, _patient timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$`)
	finds(t, examine(t, url), doctor.Danger, "not this version's: lockstile_alive")
	prepared(t, url)
	sql(t, srv, `ALTER SEQUENCE lockstile_token CACHE 20`)
	finds(t, examine(t, url), doctor.Danger, "sequence lockstile_token")
	sql(t, srv, `ALTER SEQUENCE lockstile_token CACHE 1`)
	sql(t, srv, `ALTER SEQUENCE lockstile_token SET UNLOGGED`)
	finds(t, examine(t, url), doctor.Danger, "sequence lockstile_token")
	sql(t, srv, `ALTER SEQUENCE lockstile_token SET LOGGED`)
	fine(t, examine(t, url), "schema")
	sql(t, srv, `CREATE ROLE app LOGIN`, `GRANT SELECT, INSERT, UPDATE ON lockstile_lease, lockstile_queue TO app`,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON lockstile_session, lockstile_known, lockstile_mark TO app`, `GRANT SELECT ON SEQUENCE lockstile_token TO app`)
	r := examine(t, strings.Replace(url, "postgres@", "app@", 1))
	finds(t, r, doctor.Danger, "lacks rights on lockstile_lease, lockstile_queue, lockstile_token")
	sql(t, srv, `GRANT DELETE ON lockstile_lease, lockstile_queue TO app`, `GRANT USAGE ON SEQUENCE lockstile_token TO app`)
	fine(t, examine(t, strings.Replace(url, "postgres@", "app@", 1)), "rights")
	sql(t, srv, `DROP SEQUENCE lockstile_token`)
	finds(t, examine(t, url), doctor.Danger, "no sequence lockstile_token")
}

func TestPoolerInBetweenIsFoundWithItsMode(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t, "fsync=on", "tcp_keepalives_idle=60")
	prepared(t, srv.URL("postgres"))
	url := testserver.PgBouncer(t, srv, "transaction").URL("postgres")
	finds(t, examine(t, url), doctor.Note, "pooler", "transaction or statement")
	finds(t, examine(t, url+"&mode=session"), doctor.Danger, "pooler")
	finds(t, examine(t, testserver.PgBouncer(t, srv, "session").URL("postgres")), doctor.Note, "pooler", "mode is session")
}

// The tables are what is missing, and not all that is to be known.
func TestDatabaseWithoutTablesIsLookedAtAllTheSame(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t)
	r := examineInVain(t, srv.URL("postgres"), "no tables for locks")
	finds(t, r, doctor.Danger, "fsync is off")
	finds(t, r, doctor.Danger, "schema is not this version's")
	sql(t, srv, `CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`)
	r = examineInVain(t, srv.URL("latin"))
	finds(t, r, doctor.Danger, "LATIN1")
}
