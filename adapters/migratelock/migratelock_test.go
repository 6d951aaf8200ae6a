package migratelock_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/stub"
	dbtesting "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/migratelock"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/lockertest"
)

const name = "schema"

// migrations note in a table that they were done. The table does not mind if one is done twice.
var migrations = fstest.MapFS{
	"1_first.up.sql":  {Data: []byte("INSERT INTO done VALUES (1)")},
	"2_second.up.sql": {Data: []byte("INSERT INTO done VALUES (2)")},
	"3_third.up.sql":  {Data: []byte("INSERT INTO done VALUES (3)")},
}

func newStore(t *testing.T) *lockertest.Locker {
	t.Helper()
	store := lockertest.New()
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// memory is migrate's own database in memory. It calls run before each migration.
type memory struct {
	*stub.Stub
	run func(migration int)
}

func newMemory(run func(migration int)) *memory {
	d, _ := stub.WithInstance(nil, &stub.Config{}) // it has no error
	return &memory{d.(*stub.Stub), run}
}

func (m *memory) Run(migration io.Reader) error {
	m.run(m.CurrentVersion)
	return m.Stub.Run(migration)
}

func doNothing(int) {}

func wrapped(t *testing.T, d database.Driver, l locker.Locker, opts ...locker.Option) database.Driver {
	t.Helper()
	driver, err := migratelock.Wrap(d, l, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return driver
}

func newMigrate(t *testing.T, d database.Driver, files fs.FS) *migrate.Migrate {
	t.Helper()
	source, err := iofs.New(files, ".")
	if err != nil {
		t.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "memory", d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wantFree(t *testing.T, store *lockertest.Locker) {
	t.Helper()
	another := store.Another()
	defer another.Close()
	lock, err := another.TryLock(t.Context(), name)
	if err != nil {
		t.Errorf("the lock is not free: %v", err)
		return
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMigrateHasTheLockWhileItMigrates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ran := newStore(t), 0
		db := newMemory(func(int) {
			ran++
			another := store.Another()
			defer another.Close()
			if _, err := another.TryLock(t.Context(), name); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("TryLock of another process during a migration: %v", err)
			}
			time.Sleep(time.Hour) // a lock lasts for as long as a migration does
		})
		m := newMigrate(t, wrapped(t, db, store), migrations)
		for range 2 { // a Migrate can be used again
			if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
				t.Error(err)
			}
			wantFree(t, store)
		}
		if ran != 3 {
			t.Errorf("%d migrations ran", ran)
		}
	})
}

func TestATakenLockIsErrLockedBeforeMigrateGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.Take(name)
		m := newMigrate(t, wrapped(t, newMemory(doNothing), store), migrations)
		began := time.Now()
		err := m.Up()
		if !errors.Is(err, database.ErrLocked) || !errors.Is(err, locker.ErrTaken) || time.Since(began) >= migrate.DefaultLockTimeout {
			t.Errorf("after %v: %v, want ErrLocked and ErrTaken before the %v of migrate", time.Since(began), err, migrate.DefaultLockTimeout)
		}
		store.Free(name)
		if err := m.Up(); err != nil {
			t.Errorf("Up, once more: %v", err)
		}
	})
}

func TestASilentStoreIsUnavailableBeforeMigrateGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.Link().Cut()
		m := newMigrate(t, wrapped(t, newMemory(doNothing), store), migrations)
		err := m.Up()
		if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, database.ErrLocked) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		store.Link().Heal()
		if err := m.Up(); err != nil {
			t.Errorf("Up, once more: %v", err)
		}
	})
}

// late is a Locker whose process is paused between the grant and the next line.
type late struct {
	locker.Locker
	granted, goOn chan struct{}
}

func (l late) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := l.Locker.Lock(ctx, name, opts...)
	close(l.granted)
	<-l.goOn
	return lock, err
}

// Lock gets the lock from the store, and the process is paused there for longer than LockTimeout. Migrate
// returns ErrLockTimeout and will never call Unlock; its goroutine is still in Lock.
func TestALockThatComesAfterMigrateHasGivenUpIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		slow := late{store, make(chan struct{}), make(chan struct{})}
		m := newMigrate(t, wrapped(t, newMemory(doNothing), slow, locker.WithWait(time.Second)), migrations)
		m.LockTimeout = 1500 * time.Millisecond
		result := make(chan error, 1)
		go func() { result <- m.Up() }()
		<-slow.granted
		if err := <-result; !errors.Is(err, migrate.ErrLockTimeout) {
			t.Fatalf("Up: %v, want ErrLockTimeout", err)
		}
		close(slow.goOn)
		synctest.Wait()
		wantFree(t, store)
	})
}

// punctual grants the lock at the very end of the time that the call has, when its context may
// not have ended yet.
type punctual struct {
	*lockertest.Locker
	granted func()
}

func (p punctual) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := p.Locker.Lock(ctx, name, opts...)
	p.granted()
	deadline, _ := ctx.Deadline()
	time.Sleep(time.Until(deadline))
	return lock, err
}

// Which of two timers is heard first at one instant is left to chance, so it is tried many times.
func TestALockThatComesAtTheEndOfItsTimeIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		for range 100 {
			d := wrapped(t, newMemory(doNothing), punctual{store, func() {}}, locker.WithWait(time.Second))
			if err := d.Lock(); !errors.Is(err, database.ErrLocked) || !strings.HasSuffix(err.Error(), "it was given back") {
				t.Fatalf("Lock: %v, want ErrLocked", err)
			}
			wantFree(t, store)
		}
	})
}

func TestALockThatComesTooLateAndCannotBeGivenBackIsSaidToBeSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		d := wrapped(t, newMemory(doNothing), punctual{store, store.Link().Cut}, locker.WithWait(time.Second))
		if err := d.Lock(); !errors.Is(err, database.ErrLocked) || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Lock: %v, want ErrLocked, and ErrUnavailable of Unlock", err)
		}
		store.Link().Heal()
	})
}

func TestLockTwiceAndUnlockWithoutLockAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		driver := wrapped(t, newMemory(doNothing), store)
		if err := driver.Unlock(); !errors.Is(err, database.ErrNotLocked) {
			t.Errorf("Unlock without Lock: %v", err)
		}
		store.Take(name)
		first := make(chan error, 1)
		go func() { first <- driver.Lock() }()
		synctest.Wait()
		if err := driver.Unlock(); !errors.Is(err, database.ErrNotLocked) {
			t.Errorf("Unlock while Lock waits: %v", err)
		}
		if err := driver.Lock(); !errors.Is(err, database.ErrLocked) {
			t.Errorf("a second Lock while the first waits: %v", err)
		}
		store.Free(name)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		if err := driver.Lock(); !errors.Is(err, database.ErrLocked) {
			t.Errorf("a second Lock: %v", err)
		}
		if err := driver.Unlock(); err != nil {
			t.Error(err)
		}
		if err := driver.Unlock(); !errors.Is(err, database.ErrNotLocked) {
			t.Errorf("a second Unlock: %v", err)
		}
	})
}

// Not in a bubble of synctest: what migrate has read ahead stays in a goroutine of its own.
func TestAfterALossNoFurtherMigrationBegins(t *testing.T) {
	store := newStore(t)
	var ran []int
	db := newMemory(func(migration int) {
		ran = append(ran, migration)
		if migration == 2 {
			store.Lose(name)
		}
	})
	driver := wrapped(t, db, store)
	m := newMigrate(t, driver, migrations)
	if err := m.Up(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Up: %v, want ErrLost", err)
	}
	if len(ran) != 2 || db.CurrentVersion != 2 || db.IsDirty {
		t.Errorf("the migrations %v ran, and the version is %d, dirty %v; want 1 and 2, clean", ran, db.CurrentVersion, db.IsDirty)
	}
	wantFree(t, store)
	if err := m.Up(); !errors.Is(err, migrate.ErrLocked) {
		t.Errorf("Up, once more: %v, and the page says ErrLocked", err)
	}
	if err := newMigrate(t, driver, migrations).Up(); err != nil {
		t.Errorf("Up of another Migrate with the same driver: %v", err)
	}
	if len(ran) != 3 {
		t.Errorf("the migrations %v ran", ran)
	}
}

func TestAfterALossNothingIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, db := newStore(t), newMemory(doNothing)
		db.CurrentVersion = 3
		driver := wrapped(t, db, store)
		if err := driver.Lock(); err != nil {
			t.Fatal(err)
		}
		store.Lose(name)
		if err := driver.Drop(); !errors.Is(err, locker.ErrLost) || db.CurrentVersion != 3 {
			t.Errorf("Drop: %v, and the version is %d; want ErrLost and 3", err, db.CurrentVersion)
		}
	})
}

// The lock is lost while a migration runs, and another process gets it. migrate's own mark keeps
// it from doing anything.
func TestWhoGetsTheLockWhileAMigrationRunsFindsTheVersionDirty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		db, one := newMemory(nil), fstest.MapFS{"1_first.up.sql": migrations["1_first.up.sql"]}
		other := newMigrate(t, wrapped(t, db, store.Another()), one)
		ran := 0
		db.run = func(int) {
			if ran++; ran == 1 {
				store.Lose(name)
				if err := other.Up(); !errors.As(err, new(migrate.ErrDirty)) {
					t.Errorf("the other's Up: %v, want ErrDirty", err)
				}
			}
		}
		if err := newMigrate(t, wrapped(t, db, store), one).Up(); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Up: %v, want ErrLost", err)
		}
		if ran != 1 {
			t.Errorf("%d migrations ran", ran)
		}
	})
}

func TestOpenReturnsADriverWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		opened, err := wrapped(t, newMemory(doNothing), store, locker.WithHolder("me")).Open("stub://")
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.Lock(); err != nil {
			t.Fatal(err)
		}
		if info, err := store.Inspect(t.Context(), name); err != nil || info.Holder != "me" {
			t.Errorf("it is shown as %+v, %v", info, err)
		}
		if _, err := store.Another().TryLock(t.Context(), name); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock: %v, want ErrTaken", err)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
		wantFree(t, store)
	})
}

// unopened is a driver whose database cannot be reached.
type unopened struct{ *memory }

var errOpen = errors.New("no route to host")

func (unopened) Open(string) (database.Driver, error) { return nil, errOpen }

func TestOpenSaysWhyThereIsNoDriver(t *testing.T) {
	store := newStore(t)
	if d, err := wrapped(t, unopened{newMemory(doNothing)}, store).Open("stub://"); !errors.Is(err, errOpen) || d != nil {
		t.Errorf("Open returns %v, %v", d, err)
	}
}

func TestWrapRefusesWhatCannotWork(t *testing.T) {
	for what, opt := range map[string]locker.Option{
		"shared":           locker.WithShared(),
		"slots":            locker.WithSlots(2),
		"waits too long":   locker.WithWait(migrate.DefaultLockTimeout),
		"too long a lease": locker.WithTTL(1000 * time.Hour),
	} {
		if _, err := migratelock.Wrap(newMemory(doNothing), newStore(t), name, opt); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// The page says that with a longer migrate.DefaultLockTimeout there is a longer wait.
func TestWaitMayBeTwoThirdsOfMigratesVariable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func(before time.Duration) { migrate.DefaultLockTimeout = before }(migrate.DefaultLockTimeout)
		migrate.DefaultLockTimeout = time.Hour
		store := newStore(t)
		store.Take(name)
		for want, opts := range map[time.Duration][]locker.Option{40 * time.Minute: nil, 30 * time.Minute: {locker.WithWait(30 * time.Minute)}} {
			began := time.Now()
			if err := wrapped(t, newMemory(doNothing), store, opts...).Lock(); !errors.Is(err, database.ErrLocked) || time.Since(began) != want {
				t.Errorf("after %v: %v, want ErrLocked after %v", time.Since(began), err, want)
			}
		}
	})
}

// These are migrate's tests for drivers, on a real PostgreSQL.
func TestAWrappedDriverPassesMigratesOwnTests(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", testserver.Postgres(t).URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	driver, err := pgx.WithInstance(db, &pgx.Config{})
	if err != nil {
		t.Fatal(err)
	}
	driver = wrapped(t, driver, newStore(t))
	dbtesting.Test(t, driver, []byte("SELECT 1"))
	if err := driver.Close(); err != nil {
		t.Error(err)
	}
}
