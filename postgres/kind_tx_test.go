package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/postgres"
)

// Goal: transactions that read go together, also with shared locks of sessions and psql's,
// and nobody who wants the lock alone comes in between. Their numbers are in the order of
// grants.
func TestLockTxSharedGoesTogetherWithReadersAlone(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	writer := lock(t, l, "a")
	last := uint64(writer.Token())
	unlock(t, writer)
	session := lock(t, l, "a", locker.WithShared())
	byHand := begun(t, url)
	ask[bool](t, byHand, `SELECT pg_try_advisory_lock_shared(hashtextextended('a', 0))`)
	txs := []pgx.Tx{begun(t, url), begun(t, url)}
	next := func(number uint64) {
		t.Helper()
		if number <= last {
			t.Errorf("number %d follows %d", number, last)
		}
		last = number
	}
	next(uint64(session.SharedToken()))
	for _, tx := range txs {
		number, err := postgres.LockTxShared(soon(t), tx, "a")
		if err != nil {
			t.Fatal(err)
		}
		next(uint64(number))
	}
	unlock(t, session)
	ask[bool](t, byHand, `SELECT pg_advisory_unlock_shared(hashtextextended('a', 0))`)
	if err := txs[0].Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock beside a transaction that reads: %v", err)
	}
	got := make(chan fencing.Token, 1)
	var over sync.WaitGroup
	over.Go(func() {
		tx := begun(t, url)
		token, err := postgres.LockTx(soon(t), tx, "a")
		if err != nil {
			t.Errorf("LockTx: %v", err)
		}
		got <- token
		_ = tx.Rollback(context.Background())
	})
	queued(t, l, "a", 1)
	if _, err := l.TryLock(soon(t), "a", locker.WithShared()); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock by a reader while a transaction waits to write: %v", err)
	}
	if err := txs[1].Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	next(uint64(<-got))
	over.Wait()
	reader := lock(t, l, "a", locker.WithShared())
	next(uint64(reader.SharedToken()))
	unlock(t, reader)
}
