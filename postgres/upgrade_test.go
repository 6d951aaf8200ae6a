package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// Goal: a schema that was made before versions were counted is refused with an error that
// says what to do.
func TestSchemaWithoutAVersionIsRefused(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, `CREATE SEQUENCE lockstile_token`)
	l, err := postgres.New(admin, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.EnsureSchema(soon(t)); err == nil || !strings.Contains(err.Error(), "drop it") {
		t.Errorf("EnsureSchema over a set without a version: %v", err)
	}
	exec(t, admin, `DROP SEQUENCE lockstile_token`)
	unlock(t, lock(t, ready(t, l, nil), "a"))
}

// otherVersion makes the schema look like another version's.
func otherVersion(t *testing.T, url, version string) {
	t.Helper()
	exec(t, connect(t, url), `DO $$
		DECLARE _old regprocedure;
		BEGIN
		  FOR _old IN SELECT p.oid FROM pg_proc p WHERE p.proname LIKE 'lockstile\_%' LOOP
		    EXECUTE format('DROP FUNCTION %s', _old);
		  END LOOP;
		END $$;
		CREATE FUNCTION lockstile_version() RETURNS integer LANGUAGE sql AS 'SELECT `+version+`'`)
}

// Goal: a program that is older than the schema is refused with an error that says so,
// also in the midst of its work, and does not lower the version.
func TestProgramThatIsOlderThanTheSchemaIsRefused(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	held := lock(t, l, "a")
	otherVersion(t, url, "1000")
	for what, err := range map[string]error{
		"TryLock":      tried(t, l, "b"),
		"Renew":        held.Renew(soon(t)),
		"EnsureSchema": l.EnsureSchema(soon(t)),
	} {
		if err == nil || !strings.Contains(err.Error(), "version 1000") || !strings.Contains(err.Error(), "older") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if version := query[int](t, connect(t, url), `SELECT lockstile_version()`); version != 1000 {
		t.Errorf("the version is %d", version)
	}
}

// Goal: a program that is newer than the schema says what to do, and can do it itself,
// while locks are held.
func TestProgramThatIsNewerThanTheSchemaRaisesIt(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	held := lock(t, l, "a")
	otherVersion(t, url, "0")
	exec(t, connect(t, url), `CREATE FUNCTION lockstile_enter(_name text) RETURNS integer LANGUAGE sql AS 'SELECT 1'`) // it returned something else
	if err := tried(t, l, "b"); err == nil || !strings.Contains(err.Error(), "version 0") || !strings.Contains(err.Error(), "EnsureSchema") {
		t.Errorf("TryLock before the schema was raised: %v", err)
	}
	if err := l.EnsureSchema(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("Renew after the schema was raised: %v", err)
	}
	if err := tried(t, newLocker(t, url, postgres.Options{}), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of what was held before: %v", err)
	}
	unlock(t, held)
}

func tried(t *testing.T, l locker.Locker, name string) error {
	t.Helper()
	_, err := l.TryLock(soon(t), name)
	return err
}
