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
	admin := connect(t, url)
	exec(t, admin, `CREATE FUNCTION lockstile_enter(_name text) RETURNS integer LANGUAGE sql AS 'SELECT 1'`) // it returned something else
	exec(t, admin, `CREATE SCHEMA another; CREATE FUNCTION another.lockstile_enter() RETURNS integer LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION of_the_application() RETURNS integer LANGUAGE sql AS 'SELECT 1'`)
	if err := tried(t, l, "b"); err == nil || !strings.Contains(err.Error(), "version 0") || !strings.Contains(err.Error(), "EnsureSchema") {
		t.Errorf("TryLock before the schema was raised: %v", err)
	}
	if err := l.EnsureSchema(soon(t)); err != nil {
		t.Fatal(err)
	}
	if query[int](t, admin, `SELECT another.lockstile_enter() + of_the_application()`) != 2 {
		t.Error("it is without a function that is not the schema's")
	}
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("Renew after the schema was raised: %v", err)
	}
	if err := tried(t, newLocker(t, url, postgres.Options{}), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of what was held before: %v", err)
	}
	unlock(t, held)
}

// Goal: what was held or waited for when the schema was raised from version 1 or 2, in which a
// lock had one holder, is still there. Method: their tables, and a lock and a waiter in them.
func TestLocksOfEarlierVersionsStayWhenTheSchemaIsRaised(t *testing.T) {
	for _, version := range []string{"1", "2"} {
		t.Run(version, func(t *testing.T) { locksOfAnEarlierVersionStay(t, version) })
	}
}

func locksOfAnEarlierVersionStay(t *testing.T, version string) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, `
		CREATE SEQUENCE lockstile_token MAXVALUE 9007199254740991 NO CYCLE;
		CREATE TABLE lockstile_lease (name text COLLATE "C" PRIMARY KEY, value text NOT NULL, reserved boolean NOT NULL, token bigint NOT NULL,
			holder text NOT NULL, expires timestamptz NOT NULL) WITH (fillfactor = 50);
		CREATE UNLOGGED TABLE lockstile_queue (name text COLLATE "C" NOT NULL, ticket bigint NOT NULL, value text COLLATE "C" NOT NULL,
			channel text NOT NULL, patient timestamptz NOT NULL, PRIMARY KEY (name, ticket, value));
		CREATE UNLOGGED TABLE lockstile_session (key bigint PRIMARY KEY, name text COLLATE "C" NOT NULL, pid integer NOT NULL,
			token bigint NOT NULL, holder text NOT NULL, ttl bigint NOT NULL) WITH (fillfactor = 50);
		CREATE FUNCTION lockstile_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT `+version+`';
		CREATE FUNCTION lockstile_enter(_name text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
		INSERT INTO lockstile_lease VALUES ('a', 'x', false, nextval('lockstile_token') * 1024, 'somebody', now() + interval '1 hour');
		INSERT INTO lockstile_queue VALUES ('a', 1, 'waits', '', now() + interval '1 hour')`)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	info, err := a.Inspect(soon(t), "a")
	if err != nil || !info.Held || info.Kind != locker.KindExclusive || info.Holder != "somebody" || info.Waiters != 1 {
		t.Errorf("what was held is shown as %+v, %v", info, err)
	}
	for _, kind := range []locker.Option{locker.WithHolder("exclusive"), locker.WithShared()} {
		if _, err := a.TryLock(soon(t), "a", kind); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of what was held: %v", err)
		}
	}
	exec(t, admin, `SELECT lockstile_release_5('a', 'x', false, 0, 0)`)
	exec(t, admin, `SELECT lockstile_release_5('a', 'waits', true, 0, 0)`)
	readers := []*locker.Lock{lock(t, a, "a", locker.WithShared()), lock(t, b, "a", locker.WithShared())}
	for _, l := range append(readers, lock(t, newSession(t, url), "a", locker.WithShared())) {
		unlock(t, l)
	}
}

func tried(t *testing.T, l locker.Locker, name string) error {
	t.Helper()
	_, err := l.TryLock(soon(t), name)
	return err
}
