package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// The time that the application keeps all connections of the pool is none of the lock's.
//
//	one connection, in use for as long as the lock may be held
func TestLockCountsFromWhenItHasAConnection(t *testing.T) {
	t.Parallel()
	url := database(t)
	newLocker(t, url, postgres.Options{})
	pool := poolWith(t, url, func(c *pgxpool.Config) { c.MaxConns = 1 })
	l, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conn, err := pool.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	const hold = 2 * time.Second
	done := make(chan error, 1)
	go func() {
		lock, err := l.TryLock(soon(t), "a", locker.WithMaxHold(hold))
		if err == nil {
			err = lock.Unlock(soon(t))
		}
		done <- err
	}()
	<-time.After(hold) // this is how long the application needs
	conn.Release()
	if err := <-done; err != nil {
		t.Errorf("TryLock that has waited for a connection: %v", err)
	}
}
