// Package gooselock has github.com/pressly/goose/v3 take a lock of any backend before it migrates,
// so that of many replicas that start at the same time one migrates, and the others find it
// done.
//
//	lock, err := gooselock.New(locks, "schema", locker.WithWait(10*time.Minute))
//	…
//	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithLocker(lock))
//
// goose itself has locks for PostgreSQL and MySQL. This one is for other databases (SQLite,
// ClickHouse, SQL Server, …), and for those who want to hear that a lock was lost: goose's
// locks in a table log a warning then, and its advisory locks cannot be used through a
// pooler in transaction mode.
//
// # What is promised
//
// One provider at a time migrates, of all processes that use the name, as long as what the
// backend assumes is true ([locker.Guarantees]). goose reads the versions after the lock was
// granted, so whoever comes next finds what was applied. The lock is renewed until goose
// unlocks it. When its process is killed, it is free after the TTL ([locker.WithTTL], 30
// seconds by default). Without [locker.WithWait], goose waits for the lock until the context
// of the call ends.
//
// # A lock that is lost
//
// A lock is lost when the store cannot be reached for as long as the TTL, or when somebody
// breaks it. goose's interface has no way to tell it: it goes on with the migration that
// runs, and begins further ones. At the end its call returns an error that is a
// [locker.ErrLost]: another process may have migrated at the same time. Up returns its
// results besides, or a goose.PartialError with them if a migration has failed. The provider
// can be used again: Up then shows how things are.
//
// Three things help, the best one first:
//
//   - In a database with transactions, have it refuse a version that is there already: a
//     unique index on the column version_id of goose's table. Then of two that apply a
//     migration at the same time one commits, and the other is rolled back. This holds
//     also when a process was paused and does not know yet that it has lost the lock.
//   - Call goose within [locker.Do], without this package. Then the context of the call ends
//     when the lock is lost, the transaction is rolled back, and no further migration begins.
//   - Where there are no transactions, make each migration harmless when it is repeated.
//
// # Which calls take the lock
//
// All that migrate do; Up, UpTo and UpByOne only if something is pending. Status and
// GetDBVersion do, too, and wait while another process migrates. HasPending and GetVersions
// do not, though they make goose's table if there is none. But a provider does one thing at a
// time: while its Up waits or migrates, all its other calls wait, whatever their contexts.
//
// While it waits for the lock, goose keeps a connection to the database. If that is lost,
// the call fails, and the lock is given back.
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pressly/goose/v3/lock"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Locker is for [goose.WithLocker] or [goose.WithSessionLocker], which do the same with it: the
// lock is in the backend, and neither the database nor the connection that goose hands over
// matters to it. With the second one, goose refuses Go migrations without a transaction where
// the database has one connection at most. A Locker can be given to many providers, which
// then wait for each other.
//
// [goose.WithLocker]: https://pkg.go.dev/github.com/pressly/goose/v3#WithLocker
// [goose.WithSessionLocker]: https://pkg.go.dev/github.com/pressly/goose/v3#WithSessionLocker
type Locker struct {
	locks locker.Locker
	req   *driver.Request

	// turn is full from the beginning of a Lock until its Unlock. It stays full when the lock
	// is lost: else the Unlock that is still to come would unlock the next holder's.
	turn chan struct{}
	held atomic.Pointer[locker.Lock] // of whose turn it is; nil while the store is asked
}

var (
	_ lock.Locker        = (*Locker)(nil)
	_ lock.SessionLocker = (*Locker)(nil)
)

// New returns a Locker that locks a name, which all processes that migrate the same
// database must use. The options are those of the lock. WithShared, WithSlots and WithGuard
// are refused.
func New(l locker.Locker, name string, opts ...locker.Option) (*Locker, error) {
	locks := locker.With(l, opts...)
	req, err := driver.NewRequest(locks, name)
	if err != nil {
		return nil, err
	}
	if req.Kind != locker.KindExclusive {
		return nil, fmt.Errorf("locker: lock %q: it must keep everybody else out, and one of the kind %q does not", name, req.Kind)
	}
	return &Locker{locks: locks, req: req, turn: make(chan struct{}, 1)}, nil
}

// Lock implements [lock.Locker]. Where this Locker has the lock already, Lock waits for Unlock,
// also when that lock was lost.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	ctx, cancel := l.req.Waiting(ctx) // for a turn and for the store together
	defer cancel()
	if err := l.waitForTurn(ctx); err != nil {
		return err
	}
	var lock *locker.Lock
	defer func() { // also after a panic
		if lock == nil {
			<-l.turn
		}
	}()
	lock, err := l.locks.Lock(ctx, l.req.Name)
	l.held.Store(lock)
	return err
}

// waitForTurn fills turn. If nobody has it, it does so also in a context that has ended: then the
// store's Lock says so.
func (l *Locker) waitForTurn(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	if !errors.Is(cause, ctx.Err()) {
		cause = fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return fmt.Errorf("locker: lock %q: %w, of this process: %w", l.req.Name, locker.ErrTaken, cause)
}

// Unlock implements [lock.Locker]. An [locker.ErrLost] says that the lock was lost before:
// migrations may have run without it. After any other error they all had the lock, which
// ends with its lease at the latest. Whatever it returns, the next Lock goes on.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	lock := l.held.Swap(nil)
	if lock == nil {
		return fmt.Errorf("locker: lock %q is not held: every Unlock needs a Lock of its own before it", l.req.Name)
	}
	<-l.turn
	return lock.Unlock(ctx)
}

// SessionLock implements [lock.SessionLocker].
func (l *Locker) SessionLock(ctx context.Context, _ *sql.Conn) error { return l.Lock(ctx, nil) }

// SessionUnlock implements [lock.SessionLocker], as Unlock does.
func (l *Locker) SessionUnlock(ctx context.Context, _ *sql.Conn) error { return l.Unlock(ctx, nil) }
