package gooselock_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/gooselock"
	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/quoted"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/lockertest"
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

// gate is the number of an advisory lock that the second migration waits for.
const gate = 42

// migrations note in a table that they were done. The table does not mind if one is done twice.
var migrations = fstest.MapFS{
	"00001_first.sql":  {Data: []byte("-- +goose Up\nCREATE TABLE done (migration int);\nINSERT INTO done VALUES (1);\n")},
	"00002_second.sql": {Data: []byte("-- +goose Up\nINSERT INTO done VALUES (2);\nSELECT pg_advisory_xact_lock_shared(42);\n")},
	"00003_third.sql":  {Data: []byte("-- +goose Up\nINSERT INTO done VALUES (3);\n-- +goose Down\nDELETE FROM done WHERE migration = 3;\n")},
}

// database is a real PostgreSQL with a gate.
type database struct {
	*sql.DB
	t    *testing.T
	url  string
	gate *sql.Conn
}

// newDatabase starts one whose gate is closed.
func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{t: t, url: testserver.Postgres(t).URL("postgres")}
	d.DB = d.open()
	var err error
	if d.gate, err = d.Conn(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, err = d.gate.ExecContext(soon(t), `SELECT pg_advisory_lock($1)`, gate); err != nil {
		t.Fatal(err)
	}
	return d
}

// open returns a pool of its own.
func (d *database) open() *sql.DB {
	d.t.Helper()
	db, err := sql.Open("pgx", d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = db.Close() })
	return db
}

func (d *database) openGate() {
	d.t.Helper()
	if _, err := d.gate.ExecContext(soon(d.t), `SELECT pg_advisory_unlock($1)`, gate); err != nil {
		d.t.Fatal(err)
	}
}

func (d *database) number(query string) (n int) {
	d.t.Helper()
	if err := d.QueryRowContext(soon(d.t), query).Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// atGate is how many transactions wait in the second migration.
func (d *database) atGate() int {
	d.t.Helper()
	return d.number(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`)
}

// wantDone checks that these migrations were done once each, and no other.
func (d *database) wantDone(migrations ...int) {
	d.t.Helper()
	for _, m := range migrations {
		if n := d.number(`SELECT count(*) FROM done WHERE migration = ` + string(rune('0'+m))); n != 1 {
			d.t.Errorf("migration %d was done %d times", m, n)
		}
	}
	if n := d.number(`SELECT count(*) FROM done`); n != len(migrations) {
		d.t.Errorf("%d migrations were done, want %v", n, migrations)
	}
}

func (d *database) provider(option goose.ProviderOption) *goose.Provider {
	d.t.Helper()
	p, err := goose.NewProvider(goose.DialectPostgres, d.open(), migrations, option)
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

func newLocker(t *testing.T, l locker.Locker, opts ...locker.Option) *gooselock.Locker {
	t.Helper()
	lock, err := gooselock.New(l, "schema", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until ok is true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(process.Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting until %s", what)
		}
	}
}

// The first replica is killed in the middle of the second migration, while two others wait.
func TestWhenTheReplicaThatMigratesIsKilledAnotherGoesOn(t *testing.T) {
	t.Parallel()
	d, redisServer := newDatabase(t), testserver.Redis(t)
	start := func() *process.Process {
		return process.Again(t, "REDIS_ADDR="+redisServer.Addr(), "DATABASE_URL="+d.url)
	}
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		t.Fatal(err)
	}

	first := start()
	first.Wait("it is in the second migration", func() bool { return d.atGate() == 1 })
	others := []*process.Process{start(), start()}
	others[0].Wait("two wait for the lock", func() bool {
		info, err := locks.Inspect(soon(t), "schema")
		return err == nil && info.Waiters == 2
	})
	first.Signal(syscall.SIGKILL)
	first.Ends(-1)
	d.openGate()
	for _, p := range others {
		p.Ends(0)
	}
	said := others[0].Said() + others[1].Said()
	if strings.Count(said, "2 migrations applied") != 1 || strings.Count(said, "0 migrations applied") != 1 {
		t.Errorf("one should have applied two migrations, and the other none:\n%s", said)
	}
	d.wantDone(1, 2, 3)
}

// The lock is lost in the second migration, and another process takes it and migrates. Both
// then are in the second migration.
func TestOfTwoThatMigrateAtTheSameTimeOneIsRolledBackWhereVersionsAreUnique(t *testing.T) {
	t.Parallel()
	d, store := newDatabase(t), newStore(t)
	first := d.provider(goose.WithLocker(newLocker(t, store)))
	if _, err := first.HasPending(soon(t)); err != nil { // which makes goose's table
		t.Fatal(err)
	}
	if _, err := d.Exec(`CREATE UNIQUE INDEX ON goose_db_version (version_id)`); err != nil {
		t.Fatal(err)
	}
	second := d.provider(goose.WithLocker(newLocker(t, store.Another())))

	results := make(chan error, 2)
	up := func(p *goose.Provider) {
		_, err := p.Up(soon(t))
		results <- err
	}
	go up(first)
	eventually(t, "the first is in the second migration", func() bool { return d.atGate() == 1 })
	if !store.Lose("schema") {
		t.Fatal("the first did not have the lock")
	}
	go up(second)
	eventually(t, "the second is there, too", func() bool { return d.atGate() == 2 })
	third := d.provider(goose.WithLocker(newLocker(t, store.Another())))
	if pending, err := third.HasPending(soon(t)); !pending || err != nil { // which takes no lock
		t.Errorf("HasPending of a third provider: %v, %v", pending, err)
	}
	d.openGate()
	lost, refused := 0, 0
	for range 2 {
		err := <-results
		if errors.Is(err, locker.ErrLost) {
			lost++
		}
		if pgErr := (*pgconn.PgError)(nil); errors.As(err, &pgErr) && pgErr.Code == "23505" {
			refused++
			if partial := (*goose.PartialError)(nil); !errors.As(err, &partial) {
				t.Errorf("%v is no PartialError, and the page says it is", err)
			}
		}
	}
	if lost != 1 || refused != 1 {
		t.Errorf("%d have an ErrLost and %d were refused by the index, want 1 and 1", lost, refused)
	}
	if n := d.number(`SELECT count(*) FROM done WHERE migration = 2`); n != 1 {
		t.Errorf("migration 2 was done %d times", n)
	}
	if _, err := first.Up(soon(t)); err != nil {
		t.Errorf("Up, once more: %v", err)
	}
	d.wantDone(1, 2, 3)
}

func TestUpReturnsErrLostBesideItsResults(t *testing.T) {
	t.Parallel()
	d, store, lost := newDatabase(t), newStore(t), make(chan locker.Reason, 1)
	p := d.provider(goose.WithLocker(newLocker(t, store, locker.WithObserver(func(e locker.Event) {
		if e.Type == locker.EventLost {
			lost <- e.Reason
		}
	}))))
	type result struct {
		applied []*goose.MigrationResult
		err     error
	}
	results := make(chan result, 1)
	go func() {
		applied, err := p.Up(soon(t))
		results <- result{applied, err}
	}()
	eventually(t, "it is in the second migration", func() bool { return d.atGate() == 1 })
	if !store.Lose("schema") {
		t.Fatal("it did not have the lock")
	}
	if why := <-lost; why != locker.ReasonTakenOver { // told while the migration runs
		t.Errorf("the observer was told of %v", why)
	}
	d.openGate()
	if r := <-results; len(r.applied) != 3 || !errors.Is(r.err, locker.ErrLost) {
		t.Errorf("%d results and %v, want 3 and ErrLost", len(r.applied), r.err)
	}
	if _, err := p.Down(soon(t)); err != nil { // the provider is good for more
		t.Errorf("Down: %v", err)
	}
	d.wantDone(1, 2)
}

// The page recommends this where the context of the migrations must end with the lock.
func TestWithinDoNoMigrationGoesOnWithoutTheLock(t *testing.T) {
	t.Parallel()
	d, store := newDatabase(t), newStore(t)
	p := d.provider(goose.WithAllowOutofOrder(false)) // no locker
	result := make(chan error, 1)
	go func() {
		result <- locker.Do(soon(t), store, "schema", func(ctx context.Context, _ *locker.Lock) error {
			_, err := p.Up(ctx)
			return err
		})
	}()
	eventually(t, "it is in the second migration", func() bool { return d.atGate() == 1 })
	store.Lose("schema")
	if err := <-result; !errors.Is(err, locker.ErrLost) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want ErrLost, and what goose says of the end of its context", err)
	}
	eventually(t, "the server has ended the transaction", func() bool { return d.atGate() == 0 })
	d.wantDone(1)
}

// A provider locks and unlocks in each of its calls, also when its context has ended.
func TestAProviderIsUsedAgain(t *testing.T) {
	t.Parallel()
	d, store := newDatabase(t), newStore(t)
	lock := newLocker(t, store)
	isFree := func(after string) {
		t.Helper()
		lock, err := store.Another().TryLock(soon(t), "schema")
		if err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
		if err := lock.Unlock(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	p := d.provider(goose.WithLocker(lock))
	ctx, cancel := context.WithCancel(soon(t))
	result := make(chan error, 1)
	go func() {
		_, err := p.Up(ctx)
		result <- err
	}()
	eventually(t, "it is in the second migration", func() bool { return d.atGate() == 1 })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("Up with a context that ends: %v", err)
	}
	isFree("Up")
	d.openGate()
	for _, call := range []func(context.Context) (*goose.MigrationResult, error){p.UpByOne, p.UpByOne, p.Down, p.UpByOne} {
		if _, err := call(soon(t)); err != nil {
			t.Fatal(err)
		}
		isFree("a call")
	}
	d.wantDone(1, 2, 3)
}

// It is the same lock whichever interface goose uses, and whichever connections it hands over.
func TestProvidersWithEitherInterfaceExcludeEachOther(t *testing.T) {
	t.Parallel()
	d, store := newDatabase(t), newStore(t)
	lock := newLocker(t, store)
	one, other := d.provider(goose.WithLocker(lock)), d.provider(goose.WithSessionLocker(lock))
	elsewhere := d.provider(goose.WithSessionLocker(newLocker(t, store.Another(), locker.WithWait(50*time.Millisecond))))

	results := make(chan error, 2)
	for _, p := range []*goose.Provider{one, other} {
		go func() {
			_, err := p.Up(soon(t))
			results <- err
		}()
	}
	eventually(t, "one is in the second migration", func() bool { return d.atGate() == 1 })
	if _, err := elsewhere.Up(soon(t)); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("Up in another process: %v, want ErrTaken", err)
	}
	d.openGate()
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	d.wantDone(1, 2, 3)
}

func TestUnlockWithoutLockIsAnError(t *testing.T) {
	lock := newLocker(t, newStore(t))
	if lock.Unlock(t.Context(), nil) == nil || lock.SessionUnlock(t.Context(), nil) == nil {
		t.Error("no error")
	}
	mustDo(t, "Lock", lock.Lock(t.Context(), nil))
	mustDo(t, "Unlock", lock.Unlock(t.Context(), nil))
	if lock.Unlock(t.Context(), nil) == nil {
		t.Error("a second Unlock has no error")
	}
}

func newStore(t *testing.T) *lockertest.Locker {
	t.Helper()
	store := lockertest.New()
	t.Cleanup(func() { _ = store.Close() })
	return store
}
