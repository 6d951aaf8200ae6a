package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: the server counts the locks of a connection together, so nobody in this
// process may ask for a lock again before a release that failed is made good.
//
// Interleaving: the release runs into lock_timeout, and so does its clean-up. The
// next goroutine asks before the clean-up is tried again.
func TestReleaseThatFailsIsMadeGoodBeforeTheNextGoroutineLocks(t *testing.T) {
	url := database(t)
	a, b := newSession(t, url+"&lock_timeout=100"), newSession(t, url)
	keep := lock(t, a, "b") // and the connection with it
	tx := failedRelease(t, url, a)
	admin := connect(t, url)
	waiting := `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = 1819239275`
	for _, n := range []int{1, 0, 1, 0, 1, 0} { // the clean-up waits, and has failed
		eventually(t, func() string {
			if query[int](t, admin, waiting) != n {
				return "the clean-up is not tried, or not given up"
			}
			return ""
		})
	}
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	next := lock(t, a, "a")
	if err := a.Close(); err != nil { // it waits for the clean-up
		t.Fatal(err)
	}
	unlock(t, next)
	unlock(t, lock(t, b, "a"))
	unlock(t, keep)
}

// Goal: a lock that cannot be given back ends with its connection, and is not held
// for ever by one that lives on.
func TestSessionEndsThatCannotGiveALockBack(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b := newSession(t, url+"&lock_timeout=100"), newSession(t, url)
	keep := lock(t, a, "b", locker.WithTTL(long))
	tx := failedRelease(t, url, a)
	select {
	case <-keep.Lost():
	case <-soon(t).Done():
		t.Fatal("the connection lives on")
	}
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	unlock(t, lock(t, b, "a"))
}

// failedRelease locks and releases the name "a". The release fails, and so does
// its clean-up, until the transaction ends that it returns.
func failedRelease(t *testing.T, url string, l locker.Locker) pgx.Tx {
	t.Helper()
	held := lock(t, l, "a")
	tx := begun(t, url)
	ask[bool](t, tx, `SELECT pg_advisory_xact_lock(1819239275, hashtext('a')) IS NOT NULL`)
	if err := held.Unlock(soon(t)); err == nil || errors.Is(err, locker.ErrLost) {
		t.Fatalf("Unlock while somebody else deals with the name: %v", err)
	}
	return tx
}

// Goal: whoever was refused by a standby holds nothing when it is promoted.
func TestLockThatAStandbyRefusedIsNotHeldAfterItsPromotion(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t)
	newSession(t, primary.URL("postgres"))
	standby := testserver.PostgresStandby(t, primary, primary.Addr(), nil)
	early := opened(t, "a/sessions", connect(t, standby.URL("postgres")))
	if _, err := early.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrUnavailable) {
		t.Fatalf("TryLock on a standby: %v", err)
	}
	admin := connect(t, standby.URL("postgres"))
	eventually(t, func() string {
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1`) > 0 {
			return "the lock that was refused is held"
		}
		return ""
	})
	primary.Kill()
	standby.Promote()
	unlock(t, lock(t, newSession(t, standby.URL("postgres")), "a"))
	unlock(t, lock(t, early, "a"))
}

// Goal: what is not logged works on a standby that knows of it from the log alone.
func TestSchemaThatAStandbyHasFromTheLogWorksAfterItsPromotion(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t)
	standby := testserver.PostgresStandby(t, primary, primary.Addr(), nil)
	l := newSession(t, primary.URL("postgres"))
	held := lock(t, l, "a")
	unlock(t, held)
	lsn := query[string](t, connect(t, primary.URL("postgres")), `SELECT pg_current_wal_flush_lsn()::text`)
	admin := connect(t, standby.URL("postgres"))
	eventually(t, func() string {
		if !query[bool](t, admin, `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, lsn) {
			return "the standby lags"
		}
		return ""
	})
	primary.Kill()
	standby.Promote()
	next := lock(t, opened(t, "a/sessions", connect(t, standby.URL("postgres"))), "a")
	if next.Token() <= held.Token() {
		t.Errorf("token %d follows %d", next.Token(), held.Token())
	}
	unlock(t, next)
}
