package migratelock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"

	"github.com/lockstile/locker"
)

// A LockTimeout that is shorter than the wait is a mistake, and Close makes up for it.
func TestCloseGivesBackWhatMigrateHasLeftBehind(t *testing.T) {
	for what, closesFirst := range map[string]bool{"Lock, then Close": false, "Close, then Lock": true} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			slow := late{store, make(chan struct{}), make(chan struct{})}
			driver := wrapped(t, newMemory(doNothing), slow)
			m := newMigrate(t, driver, migrations)
			m.LockTimeout = time.Second
			if err := m.Up(); !errors.Is(err, migrate.ErrLockTimeout) {
				t.Fatalf("%s: Up: %v, want ErrLockTimeout", what, err)
			}
			goOn := func() {
				close(slow.goOn)
				synctest.Wait()
			}
			if !closesFirst {
				goOn()
			}
			if source, db := m.Close(); source != nil || db != nil {
				t.Errorf("%s: Close: %v, %v", what, source, db)
			}
			if closesFirst {
				goOn()
			}
			wantFree(t, store)
			if err := driver.Unlock(); !errors.Is(err, database.ErrNotLocked) {
				t.Errorf("%s: Unlock: %v, want ErrNotLocked", what, err)
			}
		})
	}
}

// closing is a driver that must not be without the lock while it closes.
type closing struct {
	*memory
	close func()
}

func (c closing) Close() error {
	c.close()
	return c.memory.Close()
}

// A connection that closes waits for the migration that runs on it.
func TestCloseGivesTheLockBackWhenTheDriverHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		driver := wrapped(t, closing{newMemory(doNothing), func() {
			another := store.Another()
			defer another.Close()
			if _, err := another.TryLock(t.Context(), name); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("TryLock of another process while the driver closes: %v, want ErrTaken", err)
			}
		}}, store)
		if err := driver.Lock(); err != nil {
			t.Fatal(err)
		}
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
		wantFree(t, store)
	})
}

// failing is a driver that fails to close.
type failing struct{ *memory }

var errClose = errors.New("it does not close")

func (failing) Close() error { return errClose }

func TestCloseSaysWhatHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		for _, cut := range []bool{false, true} {
			driver := wrapped(t, failing{newMemory(doNothing)}, store)
			if err := driver.Lock(); err != nil {
				t.Fatal(err)
			}
			if cut {
				store.Link().Cut()
			}
			if err := driver.Close(); !errors.Is(err, errClose) || errors.Is(err, locker.ErrUnavailable) != cut {
				t.Errorf("Close: %v; the lock cannot be given back: %v", err, cut)
			}
		}
		store.Link().Heal()
	})
}

func TestCloseEndsALockThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.Take(name)
		driver := wrapped(t, newMemory(doNothing), store)
		result := make(chan error, 1)
		go func() { result <- driver.Lock() }()
		synctest.Wait()
		began := time.Now()
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
		if err := <-result; err == nil || time.Since(began) > time.Second {
			t.Errorf("Lock after %v: %v", time.Since(began), err)
		}
		if err := driver.Lock(); err == nil {
			t.Error("Lock after Close has no error")
		}
	})
}
