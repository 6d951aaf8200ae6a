package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/postgres"
)

func TestLockTxHoldsUntilTheTransactionEnds(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	pool := connect(t, url)
	var last fencing.Token
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(context.Background()) },
		func(tx pgx.Tx) error { return tx.Rollback(context.Background()) },
	} {
		tx, err := pool.Begin(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		token, err := postgres.LockTx(soon(t), tx, "it's a")
		if err != nil {
			t.Fatal(err)
		}
		if token <= last {
			t.Errorf("token %d follows %d", token, last)
		}
		if _, err := l.TryLock(context.Background(), "it's a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of a name that a transaction holds: %v", err)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		held := lock(t, l, "it's a")
		last = held.Token()
		if last <= token {
			t.Errorf("token %d follows %d", last, token)
		}
		unlock(t, held)
	}
}

// Goal: the token is drawn after the wait, not before it.
func TestLockTxDrawsItsTokenAfterTheWait(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	pool := connect(t, url)
	held := lock(t, l, "a")
	got := make(chan fencing.Token, 1)
	go func() {
		tx, err := pool.Begin(soon(t))
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		token, err := postgres.LockTx(soon(t), tx, "a")
		if err != nil {
			t.Error(err)
		}
		got <- token
	}()
	eventually(t, func() string {
		if query[int](t, pool, `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 0 {
			return "the transaction does not wait"
		}
		return ""
	})
	between := lock(t, l, "b") // draws a token meanwhile
	unlock(t, held)
	if token := <-got; token <= between.Token() {
		t.Errorf("token %d was drawn before the lock was granted (%d was drawn during the wait)", token, between.Token())
	}
}

func TestLockTxWithLockTimeoutIsTaken(t *testing.T) {
	url := database(t)
	held := lock(t, newSession(t, url), "a")
	defer unlock(t, held)
	tx, err := connect(t, url).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(context.Background(), `SET LOCAL lock_timeout = '20ms'`); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.LockTx(soon(t), tx, "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("LockTx after lock_timeout: %v", err)
	}
	if _, err := postgres.LockTx(soon(t), nil, "a"); err == nil {
		t.Error("LockTx accepts no transaction")
	}
	if _, err := postgres.LockTx(soon(t), tx, ""); err == nil {
		t.Error("LockTx accepts no name")
	}
}

// Goal: no transaction makes LockTx panic. Those of a pool have given their
// connection back when they are over.
func TestLockTxOfAFinishedTransactionIsAnError(t *testing.T) {
	url := database(t)
	newSession(t, url)
	pool := connect(t, url)
	for name, begin := range map[string]func() (pgx.Tx, error){
		"pool": func() (pgx.Tx, error) { return pool.Begin(soon(t)) },
		"connection": func() (pgx.Tx, error) {
			conn, err := pool.Acquire(soon(t))
			if err != nil {
				return nil, err
			}
			t.Cleanup(conn.Release)
			return conn.Conn().Begin(soon(t))
		},
	} {
		tx, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(soon(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.LockTx(soon(t), tx, "a"); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: LockTx after the commit: %v", name, err)
		}
	}
}

// Goal: a lock that was taken inside a savepoint ends when that is rolled back,
// together with what was written under it, and not with its release.
func TestLockTxEndsWithTheSavepointThatItWasTakenIn(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	tx, err := connect(t, url).Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for name, end := range map[string]func(pgx.Tx) error{
		"kept":        func(inner pgx.Tx) error { return inner.Commit(soon(t)) },
		"rolled back": func(inner pgx.Tx) error { return inner.Rollback(soon(t)) },
	} {
		inner, err := tx.Begin(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.LockTx(soon(t), inner, name); err != nil {
			t.Fatal(err)
		}
		if err := end(inner); err != nil {
			t.Fatal(err)
		}
		_, err = l.TryLock(soon(t), name)
		if taken := errors.Is(err, locker.ErrTaken); taken != (name == "kept") {
			t.Errorf("%s: TryLock after the savepoint: %v", name, err)
		}
	}
}

// Goal: a transaction at a higher isolation level gets the lock too, and its commit
// waits for the disk.
func TestLockTxAtAHigherIsolationLevelWaitsForTheDisk(t *testing.T) {
	url := database(t)
	newSession(t, url)
	tx, err := connect(t, url+"&synchronous_commit=off").BeginTx(soon(t), pgx.TxOptions{IsoLevel: pgx.Serializable})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := postgres.LockTx(soon(t), tx, "a"); err != nil {
		t.Fatal(err)
	}
	if set := ask[string](t, tx, `SELECT current_setting('synchronous_commit')`); set != "on" {
		t.Errorf("synchronous_commit is %s", set)
	}
	if err := tx.Commit(soon(t)); err != nil {
		t.Error(err)
	}
}
