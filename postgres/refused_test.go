package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// Goal: a waiter hears that the server will not serve it until somebody does something about
// it, and does not wait on as through a silence. Method: what it needs is taken away while it
// looks.
func TestWaiterHearsThatTheServerWillNotServeIt(t *testing.T) {
	t.Parallel()
	const again = `; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'THE_ROLE'`
	for what, c := range map[string]struct{ sql, says string }{
		"no rights":    {`REVOKE ALL ON lockstile_queue FROM THE_ROLE`, "the role may not use"},
		"no table":     {`ALTER TABLE lockstile_queue RENAME TO gone`, "EnsureSchema"},
		"no column":    {`ALTER TABLE lockstile_queue RENAME ticket TO gone`, "not as it was made"},
		"no room":      {`CREATE TRIGGER no_room BEFORE INSERT ON lockstile_queue EXECUTE FUNCTION no_room()`, "disk is full"},
		"no tokens":    {`SELECT setval('lockstile_token', 9007199254740991); DELETE FROM lockstile_lease`, "no more tokens"},
		"no login":     {`ALTER ROLE THE_ROLE NOLOGIN` + again, "user name"},
		"old pictures": {`ALTER ROLE THE_ROLE SET default_transaction_isolation = serializable` + again, "default_transaction_isolation"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			a, admin := newLocker(t, url, postgres.Options{}), connect(t, url)
			exec(t, admin, `CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$`)
			role := roleWith(t, url, "")
			b, err := postgres.New(connect(t, strings.Replace(url, "postgres@", role+"@", 1)), postgres.Options{Poll: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			lock(t, a, "a", locker.WithTTL(long))
			got := waits(t, b, "a")
			queued(t, a, "a", 1)
			for sql := range strings.SplitSeq(strings.ReplaceAll(c.sql, "THE_ROLE", role), ";") {
				exec(t, admin, sql) // one after another: who is ended comes back when the role has changed
			}
			if err := <-got; !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Lock: %v", err)
			}
		})
	}
}
