package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// overloads makes hostile versions of our own functions: with one number of another size,
// with text for everything, with one argument less. (One that has one more, with a default, is
// called by nobody: the server says that it cannot choose.)
const overloads = `
DO $$
DECLARE
  _one record;
  _way integer;
BEGIN
  FOR _one IN SELECT p.proname, p.pronargs, ARRAY(SELECT format_type(a, NULL) FROM unnest(p.proargtypes) a) AS types
    FROM pg_proc p WHERE p.proname LIKE 'lockstile\_%' AND p.pronamespace = 'hostile'::regnamespace LOOP
    FOR _way IN -1 .. _one.pronargs LOOP
      BEGIN
        EXECUTE format('CREATE FUNCTION hostile.%I(%s) RETURNS bigint LANGUAGE plpgsql AS %L', _one.proname,
          (SELECT string_agg(CASE WHEN _way = -1 THEN 'text' WHEN _way <> n THEN a WHEN a = 'bigint' THEN 'integer' WHEN a = 'integer' THEN 'bigint' ELSE 'varchar' END, ', ' ORDER BY n)
            FROM unnest(_one.types) WITH ORDINALITY u(a, n) WHERE _way <> 0 OR n < _one.pronargs),
          'BEGIN PERFORM pg_catalog.nextval(''hostile.called''); RAISE EXCEPTION ''the hostile function ' || _one.proname || '''; END');
      EXCEPTION WHEN duplicate_function THEN
      END;
    END LOOP;
  END LOOP;
END $$`

// Goal: nobody who may create something in a schema of the search path decides what a lock is.
// Method: the locks' own schema has a hostile version of all that the server has, and the
// search path has it first; then also of all our functions.
//
// Interleaving: none is needed. The attacker makes "*" of a number and an interval, with which a
// lease ends at once, and the next is granted it.
func TestNothingIsFoundThroughTheSearchPath(t *testing.T) {
	t.Parallel()
	forEachKind(t, func(t *testing.T, _ func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		admin := connect(t, url)
		exec(t, admin, testserver.HostileSchema)
		if n := query[int](t, admin, `SELECT ((SELECT count(*) FROM pg_proc WHERE pronamespace = 'hostile'::regnamespace)
			* (SELECT count(*) FROM pg_operator WHERE oprnamespace = 'hostile'::regnamespace))::int`); n < 2000*700 {
			t.Fatal("the server has more functions and operators than were made")
		}
		for _, mode := range []string{"", "&default_query_exec_mode=simple_protocol"} {
			url := url + "&search_path=hostile,pg_catalog" + mode
			a, b := onPool(t, t.Name(), connect(t, url)), opened(t, t.Name(), connect(t, url))
			exec(t, admin, overloads)
			for range 4 { // from the third on, a connection has its statements prepared
				handOver(t, a, b)
			}
			everyKind(t, a, b)
			tx := begun(t, url)
			if _, err := postgres.LockTx(soon(t), tx, "tx"); err != nil {
				t.Error(err)
			}
			if _, err := postgres.LockTxShared(soon(t), tx, "tx"); err != nil {
				t.Error(err)
			}
			if err := tx.Rollback(soon(t)); err != nil {
				t.Error(err)
			}
			if err := a.EnsureSchema(soon(t)); err != nil {
				t.Error(err)
			}
		}
		if query[bool](t, admin, `SELECT is_called FROM hostile.called`) {
			t.Error("a hostile function was called, and its error made no difference")
		}
	})
}

// everyKind does with locks what handOver does not.
func everyKind(t *testing.T, a, b lockerUnderTest) {
	t.Helper()
	for _, kind := range []locker.Option{locker.WithShared(), locker.WithSlots(2)} {
		one, err := a.Lock(soon(t), "b", kind, locker.WithTTL(long))
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if two, err := b.Lock(soon(t), "b", kind, locker.WithTTL(long)); err != nil {
			t.Error(err)
		} else {
			unlock(t, two)
		}
		unlock(t, one)
	}
	unlock(t, lock(t, a, "b", locker.WithMinHold(10*time.Millisecond)))
	unlock(t, lock(t, b, "b"))
	held := lock(t, a, "broken")
	if all, err := b.(locker.Lister).List(soon(t), "bro"); err != nil || len(all) != 1 {
		t.Errorf("List: %+v, %v", all, err)
	}
	if broken, err := b.Break(soon(t), "broken"); err != nil || !broken {
		t.Errorf("Break: %v, %v", broken, err)
	}
	_ = held.Renew(soon(t))
	if err := held.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("after Break: %v", err)
	}
	if l, ok := a.(*postgres.Locker); ok {
		if err := postgres.LateRequest(soon(t), l, rare()); err == nil {
			t.Error("a request that was withdrawn is granted")
		}
		if err := postgres.Keep(soon(t), l, rare(), time.Second); err != nil {
			t.Error(err)
		}
	}
}

// Goal: what is in the way is named, where a search path or a schema cannot be used.
func TestPlaceThatCannotBeUsedIsRefusedByName(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, `CREATE SCHEMA "it's"; CREATE SCHEMA "a$$b"; CREATE SCHEMA "Mine & ""yours"""`)
	for path, want := range map[string]string{"%22it%27s%22": "it's", "%22a$$b%22": "a$$b", "nowhere": "search path"} {
		l, err := postgres.New(connect(t, url+"&search_path="+path), postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.EnsureSchema(soon(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("search path %s: %v", path, err)
		}
	}
	l := newLocker(t, url+"&search_path=%22Mine%20%26%20%22%22yours%22%22%22", postgres.Options{})
	unlock(t, lock(t, l, "a"))
}

// Goal: a migration's own search path is as it was when the Schema has been applied in it.
func TestSchemaLeavesTheSearchPathAsItWas(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, `CREATE SCHEMA mine`)
	conn, err := pgx.Connect(soon(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range []string{`BEGIN`, `SET search_path = mine, public`, postgres.Schema, `CREATE TABLE here ()`, `COMMIT`, `CREATE TABLE there ()`} {
		if _, err := conn.Exec(soon(t), sql); err != nil {
			t.Fatal(err)
		}
	}
	if !query[bool](t, admin, `SELECT to_regclass('mine.here') IS NOT NULL AND to_regclass('mine.there') IS NOT NULL AND to_regclass('mine.lockstile_lease') IS NOT NULL`) {
		t.Error("the transaction's tables are elsewhere")
	}
}

// Goal: who makes something under one of our names before the schema is applied does not have it called
// by whoever applies it. Method: a function that the Schema calls, and a table with a trigger.
func TestSchemaTakesNothingThatAStrangerHasMade(t *testing.T) {
	for what, trap := range map[string]string{
		"lockstile_version()": `CREATE FUNCTION lockstile_version() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN PERFORM public.met(); RETURN 1; END $$`,
		"lockstile_drawn": `CREATE TABLE lockstile_drawn (upto bigint PRIMARY KEY);
			CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.met(); RETURN new; END $$;
			CREATE TRIGGER trap BEFORE INSERT ON lockstile_drawn EXECUTE FUNCTION trap()`,
	} {
		url := database(t)
		admin := connect(t, url)
		role := roleWith(t, url, "")
		exec(t, admin, `CREATE SEQUENCE seen; GRANT ALL ON seen TO PUBLIC; GRANT CREATE ON SCHEMA public TO `+role)
		exec(t, connect(t, strings.Replace(url, "postgres@", role+"@", 1)),
			`CREATE FUNCTION met() RETURNS void LANGUAGE sql AS $$ SELECT pg_catalog.nextval('public.seen') $$; `+trap)
		l, err := postgres.New(admin, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.EnsureSchema(soon(t)); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), role) {
			t.Errorf("%s: EnsureSchema: %v", what, err)
		}
		if query[bool](t, admin, `SELECT is_called FROM seen`) {
			t.Errorf("%s: the stranger's code has run", what)
		}
	}
}

// Goal: a role that may not use the schema of the locks makes no second set in another schema of the same
// search path. The server shows it nothing of the first.
func TestSecondSetIsNotMadeBehindASchemaThatTheRoleMayNotUse(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, `CREATE SCHEMA "the locks"; CREATE SCHEMA app`)
	path := "&search_path=%22the%20locks%22,app"
	lock(t, newLocker(t, url+path, postgres.Options{}), "a", locker.WithTTL(long))
	role := roleWith(t, url, "")
	exec(t, admin, `GRANT ALL ON SCHEMA app TO `+role)
	l, err := postgres.New(connect(t, strings.Replace(url, "postgres@", role+"@", 1)+path), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.EnsureSchema(soon(t)); err == nil || !strings.Contains(err.Error(), "the locks") {
		t.Errorf("EnsureSchema: %v", err)
	}
	if held, err := l.TryLock(soon(t), "a"); err == nil {
		t.Errorf("two hold one lock under one search path: %v", held)
	}
}
