package migratelock_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/quoted"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// TestMain is a replica where a test has started it as one.
func TestMain(m *testing.M) {
	if os.Getenv("REDIS_ADDR") != "" {
		Example()
		return
	}
	os.Exit(m.Run())
}

func TestThePageShowsWhatIsRun(t *testing.T) { quoted.Check(t, "README.md", "example_test.go") }

// place is a real PostgreSQL with the data, a real Redis with the lock, and replicas.
type place struct {
	*sql.DB
	t     *testing.T
	url   string
	gate  *sql.Conn
	redis *testserver.RedisServer
	locks *singlenode.Locker
}

// newPlace makes a place where replicas stop at an insertion into a table for which a
// condition is true, until the gate opens.
func newPlace(t *testing.T, table, condition string) *place {
	t.Helper()
	p := &place{t: t, url: testserver.Postgres(t).URL("postgres"), redis: testserver.Redis(t)}
	rdb := redis.NewClient(&redis.Options{Addr: p.redis.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	db, err := sql.Open("pgx", p.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p.DB = db
	if _, err := pgx.WithInstance(db, &pgx.Config{}); err != nil { // it makes its table
		t.Fatal(err)
	}
	if p.locks, err = singlenode.New(rdb, singlenode.Options{}); err != nil {
		t.Fatal(err)
	}
	if p.gate, err = db.Conn(p.soon()); err != nil {
		t.Fatal(err)
	}
	_, err = p.gate.ExecContext(p.soon(), `
		SELECT pg_advisory_lock(42);
		CREATE TABLE done (migration int);
		CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_advisory_xact_lock_shared(42);
			RETURN NEW;
		END $$;
		CREATE TRIGGER stop BEFORE INSERT ON `+table+` FOR EACH ROW WHEN (`+condition+`) EXECUTE FUNCTION stop()`)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) soon() context.Context {
	ctx, cancel := context.WithTimeout(p.t.Context(), process.Patience)
	p.t.Cleanup(cancel)
	return ctx
}

func (p *place) number(query string) (n int) {
	p.t.Helper()
	if err := p.QueryRowContext(p.soon(), query).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// killAtGate starts three replicas, and kills the first one, which has the lock, at the gate.
// Then it opens the gate. It returns the two others.
func (p *place) killAtGate() []*process.Process {
	p.t.Helper()
	start := func() *process.Process {
		return process.Again(p.t, "REDIS_ADDR="+p.redis.Addr(), "DATABASE_URL="+p.url)
	}
	first := start()
	first.Wait("it is at the gate", func() bool {
		return p.number(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 1
	})
	others := []*process.Process{start(), start()}
	others[0].Wait("two wait for the lock", func() bool {
		info, err := p.locks.Inspect(p.soon(), name)
		return err == nil && info.Waiters == 2
	})
	first.Signal(syscall.SIGKILL)
	first.Ends(-1)
	if _, err := p.gate.ExecContext(p.soon(), `SELECT pg_advisory_unlock(42)`); err != nil {
		p.t.Fatal(err)
	}
	return others
}

// wantDone checks that the migrations 1 to n were done once each, and no other.
func (p *place) wantDone(n int) {
	p.t.Helper()
	if all, different := p.number(`SELECT count(*) FROM done`), p.number(`SELECT count(DISTINCT migration) FROM done WHERE migration <= `+string(rune('0'+n))); all != n || different != n {
		p.t.Errorf("%d migrations were done, %d of them different; want 1 to %d, once each", all, different, n)
	}
}

// The first replica is killed after its first migration, before it marks the second one.
func TestWhenTheReplicaThatMigratesIsKilledAnotherGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "schema_migrations", "NEW.version = 2 AND NEW.dirty")
	others := p.killAtGate()
	for _, o := range others {
		o.Ends(0)
	}
	said := others[0].Said() + others[1].Said()
	if strings.Count(said, " migrated\n") != 1 || strings.Count(said, "nothing to migrate") != 1 {
		t.Errorf("one should have migrated, and the other not:\n%s", said)
	}
	p.wantDone(3)
}

// The first replica is killed in the middle of its second migration.
func TestAMigrationWhoseReplicaIsKilledIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "done", "NEW.migration = 2")
	for _, o := range p.killAtGate() {
		o.Ends(1)
		o.Says("Dirty database version 2")
	}
	// The server notices only now that nobody waits for the migration's answer.
	for deadline := time.Now().Add(process.Patience); p.number(`SELECT count(*) FROM done`) < 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the migration under way does not end")
		}
	}
	p.wantDone(2)
}
