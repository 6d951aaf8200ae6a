// Package migratelock has github.com/golang-migrate/migrate/v4 take a lock of any backend before it
// migrates, so that of many replicas that start at the same time one migrates, and the others
// find it done.
//
//	driver, err = migratelock.Wrap(driver, locks, "schema")
//	…
//	m, err := migrate.NewWithInstance("iofs", source, "sqlite", driver)
//
// The lock takes the place of the driver's own. It is for drivers whose own lock keeps only the
// goroutines of one process apart: SQLite, ClickHouse, Cassandra, Redshift, Snowflake and others.
// Drivers that make their table when they are made do so under their own lock, also with
// this package. So it does not help a PostgreSQL driver behind a pooler in transaction mode.
//
// # What is promised
//
// One Migrate at a time changes the database, of all processes that use the name, as long as
// what the backend assumes is true ([locker.Guarantees]). It reads the version after the
// lock was granted. The lock is renewed until it is unlocked. When its process is killed,
// it is free after the TTL ([locker.WithTTL], 30 seconds by default).
//
// A process that is killed while a migration runs leaves the version dirty. The next one gets
// the lock, returns a migrate.ErrDirty, and changes nothing. This is migrate's rule: a
// person has to look.
//
// # How long Lock waits
//
// Migrate waits for Lock for its LockTimeout, and then leaves the call running. A lock that came
// after that would never be unlocked. So Lock waits for two thirds of
// migrate.DefaultLockTimeout, which makes 10 seconds, or for less with [locker.WithWait]. A
// grant that arrives later all the same, because the process was paused, is given back. The error
// of a lock that is taken is a [database.ErrLocked] and a [locker.ErrTaken], and the same
// Migrate can be asked again.
//
// To wait for longer, set migrate.DefaultLockTimeout before Wrap and before the Migrate is made.
// Do not make the LockTimeout of a Migrate shorter than that variable. Where a lock is left
// behind all the same, Close gives it back.
//
// # A lock that is lost
//
// A lock is lost when the store cannot be reached for as long as the TTL, or when somebody
// breaks it. A migration that runs then goes on, for migrate has no way to stop it. The next
// one is not begun, nor is Drop: the call returns an error that is a [locker.ErrLost], and the
// version is not dirty. Whoever gets the lock while the migration still runs finds the version
// dirty, returns an ErrDirty, and changes nothing. One case is left: the process is paused
// after this package has looked at the lock, and before migrate has written that the version
// is dirty. Where that would do harm, a migration must fail when it is repeated.
//
// After an error of Unlock, as after a loss, a Migrate believes that it has the lock, and
// returns an ErrLocked from then on. Make another one, with the same driver.
package migratelock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Wrap returns the driver with a lock in place of its own, also in drivers that its Open
// returns. All processes that migrate the same database must use the same name. The options
// are those of the lock. WithShared, WithSlots and WithGuard are refused, and so is a
// WithWait that is longer than two thirds of migrate.DefaultLockTimeout.
func Wrap(d database.Driver, l locker.Locker, name string, opts ...locker.Option) (database.Driver, error) {
	locks := locker.With(l, opts...)
	req, err := driver.NewRequest(locks, name)
	if err != nil {
		return nil, err
	}
	switch longest := migrate.DefaultLockTimeout * 2 / 3; {
	case req.Kind != locker.KindExclusive:
		return nil, fmt.Errorf("migratelock: lock %q: it must keep everybody else out, and one of the kind %q does not", name, req.Kind)
	case req.Wait > longest:
		return nil, fmt.Errorf("migratelock: lock %q: WithWait(%v) is over %v, which is two thirds of migrate.DefaultLockTimeout: set that variable to more, before the Migrate is made", name, req.Wait, longest)
	case req.Wait == 0:
		req.Wait = longest
	}
	return wrap(d, locks, req), nil
}

func wrap(d database.Driver, l locker.Locker, req *driver.Request) *guarded {
	open, shut := context.WithCancel(context.Background())
	return &guarded{Driver: d, locks: l, req: req, open: open, shut: shut}
}

// guarded is a Driver with another lock. Its lock is nil while nobody has it.
type guarded struct {
	database.Driver
	locks locker.Locker
	req   *driver.Request
	open  context.Context // ends with Close
	shut  context.CancelFunc

	locked atomic.Bool // from the beginning of Lock until it fails, or until Unlock
	lock   atomic.Pointer[locker.Lock]
}

// Lock implements [database.Driver].
func (d *guarded) Lock() error {
	return database.CasRestoreOnErr(&d.locked, false, true, database.ErrLocked, d.acquire)
}

func (d *guarded) acquire() error {
	ctx, cancel := d.req.Waiting(d.open)
	defer cancel()
	lock, err := d.locks.Lock(ctx, d.req.Name)
	if errors.Is(err, locker.ErrTaken) {
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	}
	if err != nil {
		return err
	}
	// The context may not know yet that its time is over, if the process was paused.
	if deadline, _ := ctx.Deadline(); !time.Now().Before(deadline) {
		return d.back(lock, "it came so late that Migrate may have given up")
	}
	d.lock.Store(lock)
	if d.open.Err() != nil { // Close may have come before there was anything to give back
		d.lock.Store(nil)
		return d.back(lock, "the driver was closed")
	}
	return nil
}

// back gives a lock back that nobody wants any more.
func (d *guarded) back(lock *locker.Lock, why string) error {
	err := fmt.Errorf("migratelock: lock %q: %w: %s, and it was given back", d.req.Name, database.ErrLocked, why)
	if failed := lock.Unlock(d.open); failed != nil {
		return fmt.Errorf("%w; %w", err, failed)
	}
	return err
}

// Unlock implements [database.Driver]. A [locker.ErrLost] says that the lock was lost before,
// and a migration may have run without it. After any other error it ends with its lease at
// the latest.
func (d *guarded) Unlock() error {
	lock := d.lock.Swap(nil)
	if lock == nil {
		return database.ErrNotLocked
	}
	defer d.locked.Store(false)
	return lock.Unlock(d.open)
}

// SetVersion implements [database.Driver]. Migrate calls it before each migration, with dirty,
// and this is the last moment at which nothing has changed.
func (d *guarded) SetVersion(version int, dirty bool) error {
	if err := d.lost(); dirty && err != nil {
		return fmt.Errorf("migratelock: the migration to version %d was not begun: %w", version, err)
	}
	return d.Driver.SetVersion(version, dirty)
}

// Drop implements [database.Driver].
func (d *guarded) Drop() error {
	if err := d.lost(); err != nil {
		return fmt.Errorf("migratelock: nothing was dropped: %w", err)
	}
	return d.Driver.Drop()
}

// lost returns an error if there was a lock, and it is lost.
func (d *guarded) lost() error {
	if lock := d.lock.Load(); lock != nil {
		return lock.Err()
	}
	return nil
}

// Open implements [database.Driver].
func (d *guarded) Open(url string) (database.Driver, error) {
	opened, err := d.Driver.Open(url)
	if err != nil {
		return nil, err
	}
	return wrap(opened, d.locks, d.req), nil
}

// Close implements [database.Driver]. It ends a Lock that still waits, and gives back what is
// locked, when the driver has closed: until then a migration may run on it.
func (d *guarded) Close() error {
	d.shut()
	err := d.Driver.Close()
	if lock := d.lock.Swap(nil); lock != nil {
		err = errors.Join(err, lock.Unlock(d.open))
	}
	return err
}
