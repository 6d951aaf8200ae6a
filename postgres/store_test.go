package postgres_test

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/postgres"
)

// Goal: only the holder renews and releases. Method: the row is given to somebody
// else behind the holder's back.
func TestHolderThatWasReplacedIsToldAndTouchesNothing(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	l := newLocker(t, url, postgres.Options{})
	renews, unlocks := lock(t, l, "a", locker.WithTTL(long)), lock(t, l, "b", locker.WithTTL(long))
	exec(t, admin, `UPDATE lockstile_lock SET value = 'other', expires = now() + interval '1 hour'`)
	var lost *locker.LostError
	if err := renews.Renew(soon(t)); !errors.As(err, &lost) || lost.Reason != locker.TakenOver {
		t.Errorf("Renew: %v", err)
	}
	if err := unlocks.Unlock(context.Background()); !errors.As(err, &lost) || lost.Reason != locker.TakenOver {
		t.Errorf("Unlock: %v", err)
	}
	untouched := `SELECT count(*)::int FROM lockstile_lock WHERE value = 'other' AND expires BETWEEN now() + interval '50 minutes' AND now() + interval '1 hour'`
	if n := query[int](t, admin, untouched); n != 2 {
		t.Errorf("%d of 2 rows are as they were", n)
	}
}

// Goal: a lease that has ended is over, also where nobody has taken it yet.
func TestLeaseThatEndedInTheStoreIsNotRenewed(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	held := lock(t, l, "a", locker.WithTTL(long))
	exec(t, connect(t, url), `UPDATE lockstile_lock SET expires = clock_timestamp() - interval '1 second'`)
	if err := held.Renew(soon(t)); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Renew: %v", err)
	}
}

// Goal: a request that arrives twice is granted once.
func TestSecondRequestOfTheHolderIsAnsweredWithTheSameToken(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	held := lock(t, l, "a", locker.WithTTL(long))
	token := query[fencing.Token](t, connect(t, url),
		`SELECT (lockstile_lease_acquire(name, value, 600000, '', false, '', 0, 0))._token FROM lockstile_lock`)
	if token != held.Token() {
		t.Errorf("the holder has token %d, its second request %d", held.Token(), token)
	}
	unlock(t, held)
}

// Goal: a release that arrives late does not hand the lock to a waiter that has
// gone. Method: the statement itself, for a value that was withdrawn.
func TestLateReleaseDoesNotHandOverToAWaiterThatHasGone(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	l := newLocker(t, url, postgres.Options{})
	held := lock(t, l, "a", locker.WithTTL(long))
	exec(t, admin, `SELECT lockstile_withdraw(false, 'a', 'heir', '', 600000, false, false)`)
	code := query[int64](t, admin, `SELECT lockstile_lease_release('a', value, '', 'heir', 600000, '', false, 0, false, 0, 0) FROM lockstile_lock`)
	if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_lock`); code != 0 || n != 0 {
		t.Errorf("the release answered %d and left %d locks", code, n)
	}
	if err := held.Unlock(context.Background()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock of a lock that is gone: %v", err)
	}
}

// Goal: a renewal that has not committed yet is waited for. Method: a transaction
// by hand extends a lease at its end, and commits only when somebody waits.
func TestTakeoverWaitsForARenewalUnderWay(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	lock(t, a, "a", locker.WithTTL(long))
	renewal, err := admin.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, `UPDATE lockstile_lock SET expires = clock_timestamp()`)
	if _, err := renewal.Exec(soon(t), `UPDATE lockstile_lock SET expires = clock_timestamp() + interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := b.TryLock(soon(t), "a")
		got <- err
	}()
	eventually(t, func() string {
		select {
		case err := <-got:
			t.Fatalf("TryLock did not wait for the renewal: %v", err)
		default:
		}
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE NOT granted`) == 0 {
			return "TryLock does not wait for the renewal"
		}
		return ""
	})
	if err := renewal.Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of a lease that was being renewed: %v", err)
	}
}

// Goal: a release is one step with what it finds: nobody queues up between its
// look and its end. Method: a transaction by hand deals with the name.
func TestReleaseWaitsForWhoeverDealsWithTheName(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	held := lock(t, newLocker(t, url, postgres.Options{}), "a", locker.WithTTL(long))
	tx, err := admin.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(soon(t), `SELECT pg_advisory_xact_lock(1819239275, hashtext('a'))`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- held.Unlock(context.Background()) }()
	eventually(t, func() string {
		select {
		case err := <-done:
			t.Fatalf("Unlock did not wait: %v", err)
		default:
		}
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 0 {
			return "Unlock does not wait"
		}
		return ""
	})
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil && !errors.Is(err, context.DeadlineExceeded) { // on a slow machine
		t.Error(err)
	}
}

// Goal: goroutines of one process do not keep other processes out: after 16 in a
// row it is another's turn. Method: more than those stand in line behind a holder
// before another process is in the store's queue, and all unlock so soon that 16
// turns take just more than 25 ms, within which there could be more.
func TestOtherProcessesGetTheirTurnBetweenGoroutinesOfOne(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		const waiters, limit = 24, 16
		url := database(t)
		a, b := open(t, url), open(t, url)
		held := lock(t, a, "a", locker.WithTTL(long))
		var wait sync.WaitGroup
		var turns atomic.Int64
		for range waiters {
			ctx := &watched{Context: soon(t), asked: make(chan struct{})}
			wait.Go(func() {
				held, err := a.Lock(ctx, "a", locker.WithTTL(long))
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				turns.Add(1)
				time.Sleep(2 * time.Millisecond)
				if err := held.Unlock(context.Background()); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
			<-ctx.asked
		}
		wait.Go(func() {
			held, err := b.Lock(soon(t), "a", locker.WithTTL(long))
			if err != nil {
				t.Errorf("Lock of another process: %v", err)
				return
			}
			if n := turns.Load(); n > limit {
				t.Errorf("another process waited for %d turns, the limit is %d", n, limit)
			}
			if err := held.Unlock(context.Background()); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
		queued(t, a, "a", 1)
		unlock(t, held)
		wait.Wait()
	})
}

// Goal: a slow answer is no lock, and what it granted is given back.
func TestGrantThatTookTooLongIsRefusedAndGivenBack(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		admin := connect(t, url)
		a, b := open(t, url), open(t, url)
		unlock(t, lock(t, a, "warm up"))
		tx, err := admin.Begin(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(soon(t), `SELECT pg_advisory_xact_lock(1819239275, hashtext('a'))`); err != nil {
			t.Fatal(err)
		}
		free := time.AfterFunc(600*time.Millisecond, func() { _ = tx.Rollback(context.Background()) })
		defer free.Stop()
		_, err = a.Lock(soon(t), "a", locker.WithTTL(time.Second), locker.WithMinValidity(700*time.Millisecond))
		if !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Lock that was granted too late: %v", err)
		}
		held, err := b.TryLock(soon(t), "a")
		if err != nil {
			t.Fatalf("TryLock after it: %v", err)
		}
		unlock(t, held)
	})
}

// Goal: whoever has lost the lock hands nothing over. Method: the statements
// themselves, with a value that is not the holder's.
func TestReleaseOfAnotherValueHandsNothingOver(t *testing.T) {
	statements := map[string]string{
		"leases":   `SELECT lockstile_lease_release('a', 'other', '', 'heir', 600000, '', false, 0, false, 0, 0)`,
		"sessions": `SELECT lockstile_session_release('a', 'other', '', 'heir', 600000, '', false, 0)`,
	}
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		held := lock(t, open(t, url), "a", locker.WithTTL(long))
		admin := connect(t, url)
		if code := query[int64](t, admin, statements[path.Base(t.Name())]); code != -1 {
			t.Errorf("release answers %d", code)
		}
		if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_lock WHERE value <> 'heir' AND token = $1`, int64(held.Token())); n != 1 {
			t.Error("the lock was handed over, or is gone")
		}
		unlock(t, held)
	})
}

// Goal: what was withdrawn is refused for as long as was asked, also where another
// process clears away meanwhile what the dead have left. Method: the statements
// themselves.
func TestSweepSparesWhatWasWithdrawnForAsLongAsItMayArrive(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	newLocker(t, url, postgres.Options{})
	exec(t, admin, `SELECT lockstile_withdraw(false, 'a', 'late', '', 60000, false, false)`)
	exec(t, admin, `SELECT lockstile_sweep()`)
	token := query[int64](t, admin, `SELECT (lockstile_lease_acquire('a', 'late', 600000, '', false, '', 0, 0))._token`)
	if token != -1 {
		t.Errorf("what was withdrawn for a minute and arrives now was answered %d", token)
	}
}
