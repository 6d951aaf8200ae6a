package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// long is a TTL that no test waits for: what waits for its end hangs.
const long = 10 * time.Minute

// queued waits until so many wait in the store.
func queued(tb testing.TB, l locker.Inspector, name string, n int) {
	tb.Helper()
	eventually(tb, func() string {
		info, err := l.Inspect(context.Background(), name)
		if err != nil || info.Waiters != n {
			return fmt.Sprintf("%d waiters, want %d (%v)", info.Waiters, n, err)
		}
		return ""
	})
}

func TestWaitersOfDifferentProcessesAreServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		first := open(t, url)
		held := lock(t, first, "a", locker.WithTTL(long))
		const n = 6
		order := make(chan int, n)
		var wait sync.WaitGroup
		for i := range n {
			l := open(t, url)
			wait.Go(func() {
				held, err := l.Lock(soon(t), "a", locker.WithTTL(long))
				if err != nil {
					t.Errorf("waiter %d: %v", i, err)
					return
				}
				order <- i
				if err := held.Unlock(context.Background()); err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
			})
			queued(t, first, "a", i+1)
		}
		unlock(t, held)
		wait.Wait()
		for i := range n {
			if got := <-order; got != i {
				t.Errorf("waiter %d was served as number %d", got, i)
			}
		}
	})
}

// Goal: exclusion, and tokens in the order of grants, where processes and their
// goroutines compete.
func TestTokensFollowTheOrderOfGrantsUnderConcurrency(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		seen := newWitness(t)
		var wait sync.WaitGroup
		for range 4 {
			l := open(t, url+"&pool_max_conns=4")
			for range 8 {
				wait.Go(func() {
					for range 10 {
						seen.visit(l, "a")
					}
				})
			}
		}
		wait.Wait()
		if seen.visits != 4*8*10 {
			t.Errorf("%d visits", seen.visits)
		}
	})
}

// Goal: a waiter that died or hangs does not stand in the way. Method: its place
// in the queue is put there by hand, before a live waiter's.
func TestDeadAndHangingWaitersAreSkipped(t *testing.T) {
	url := database(t)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	// One hangs: its connection lives, and it never claims its turn.
	hanging, err := admin.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Release()
	if _, err := hanging.Exec(context.Background(), `SELECT pg_advisory_lock(1819239276, hashtext('hanging'))`); err != nil {
		t.Fatal(err)
	}
	for _, channel := range []string{"dead", "hanging"} {
		held := lock(t, a, channel, locker.WithTTL(long))
		waiters := 1
		if channel == "dead" {
			waiters = 100 // too many to give each of them time to claim the lock
		}
		exec(t, admin, `INSERT INTO lockstile_waiter SELECT $1, false, -i, 'x' || i, $1, now() + interval '1 hour' FROM generate_series(1, $2) i`,
			channel, waiters)
		got := make(chan *locker.Lock, 1)
		go func() {
			held, err := b.Lock(soon(t), channel, locker.WithTTL(long))
			if err != nil {
				t.Errorf("Lock behind a %s waiter: %v", channel, err)
			}
			got <- held
		}()
		queued(t, a, channel, waiters+1)
		unlock(t, held)
		if channel == "hanging" {
			_, err := a.TryLock(context.Background(), channel)
			if !errors.Is(err, locker.ErrTaken) {
				t.Errorf("TryLock of a lock reserved for a waiter: %v", err)
			}
		}
		if held := <-got; held != nil {
			unlock(t, held)
		}
	}
}

// Goal: who has waited goes first also where nobody passes the lock on, because
// its holder died, and the newcomer keeps nothing.
func TestNewcomerDoesNotOvertakeWaitersWhenALockEnds(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a, b := open(t, url), open(t, url)
		admin := connect(t, url)
		unlock(t, lock(t, b, "another"))
		held := lock(t, a, "a", locker.WithTTL(long))
		exec(t, admin, `INSERT INTO lockstile_waiter SELECT name, session, 0, 'x', '', now() + interval '1 hour' FROM lockstile_lock`)
		exec(t, admin, `UPDATE lockstile_lock SET expires = clock_timestamp() WHERE NOT session`)
		exec(t, admin, `SELECT lockstile_session_force('a')`)
		if _, ok := a.(*postgres.SessionLocker); ok {
			<-held.Lost()
		}
		eventually(t, func() string {
			if query[int](t, admin, advisoryLocks) > 0 {
				return "the advisory lock is held"
			}
			return ""
		})
		for range 2 { // where nobody else waits the reservation alone keeps it
			if _, err := b.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("TryLock while somebody waits: %v", err)
			}
			exec(t, admin, `UPDATE lockstile_lock SET expires = now() + interval '1 hour' WHERE reserved`)
		}
		if first := query[string](t, admin, `SELECT value FROM lockstile_lock WHERE reserved`); first != "x" {
			t.Errorf("the lock is reserved for %q", first)
		}
		if n := query[int](t, admin, advisoryLocks); n > 0 {
			t.Error("the newcomer has the advisory lock")
		}
	})
}

// Goal: a release reserves the lock for who waits in another process.
func TestReleaseReservesTheLockForTheFirstWaiter(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		held := lock(t, open(t, url), "a")
		admin := connect(t, url)
		exec(t, admin, `INSERT INTO lockstile_waiter SELECT name, session, i, 'x' || i, '', now() + interval '1 hour' FROM lockstile_lock, generate_series(1, 2) i`)
		unlock(t, held)
		if first := query[string](t, admin, `SELECT coalesce(min(value), '') FROM lockstile_lock WHERE reserved`); first != "x1" {
			t.Errorf("the lock is reserved for %q", first)
		}
		if n := query[int](t, admin, advisoryLocks); n > 0 {
			t.Error("the advisory lock is held")
		}
	})
}

// advisoryLocks counts the advisory locks of session locks in this database.
const advisoryLocks = `SELECT count(*)::int FROM pg_locks l JOIN pg_database d ON d.oid = l.database
	WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid = 1`

func TestExpiredLeaseIsTakenOverAfterItsHolderStoppedBelieving(t *testing.T) {
	url := database(t)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	first := lock(t, a, "a", locker.WithTTL(time.Second), locker.WithoutRenewal())
	second := lock(t, b, "a")
	if err := first.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the first holder still believed when the second was granted: %v", err)
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d follows %d", second.Token(), first.Token())
	}
	if err := first.Unlock(context.Background()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock of a lost lock: %v", err)
	}
	if err := second.Renew(soon(t)); err != nil {
		t.Errorf("the late unlock disturbed the second holder: %v", err)
	}
	unlock(t, second)
}

// Goal: a waiter whose connection was cut hears of its turn all the same.
func TestWaiterIsToldAfterItsListeningConnectionBroke(t *testing.T) {
	url := database(t)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	held := lock(t, a, "a", locker.WithTTL(long))
	got := make(chan error, 1)
	go func() {
		second, err := b.Lock(soon(t), "a")
		if err == nil {
			err = second.Unlock(context.Background())
		}
		got <- err
	}()
	queued(t, a, "a", 1)
	admin := connect(t, url)
	channel := query[string](t, admin, `SELECT channel FROM lockstile_waiter`)
	exec(t, admin, `SELECT lockstile_session_end($1)`, channel)
	eventually(t, func() string { // it has come back under another address
		if query[string](t, admin, `SELECT channel FROM lockstile_waiter`) == channel {
			return "the waiter did not notice that its connection broke"
		}
		return ""
	})
	unlock(t, held)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestWaiterThatGivesUpLeavesNothingBehind(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a, b := open(t, url), open(t, url)
		held := lock(t, a, "a", locker.WithTTL(long))
		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan error, 1)
		go func() {
			_, err := b.Lock(ctx, "a")
			gone <- err
		}()
		queued(t, a, "a", 1)
		cancel()
		if err := <-gone; !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock with a cancelled context: %v", err)
		}
		queued(t, a, "a", 0)
		unlock(t, held)
	})
}

func TestCloseEndsWaitingAndLeavesHeldLocks(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a, b := open(t, url), open(t, url)
		held := lock(t, a, "a", locker.WithTTL(long))
		other := lock(t, b, "b", locker.WithTTL(long))
		gone := make(chan error, 1)
		go func() {
			_, err := b.Lock(soon(t), "a")
			gone <- err
		}()
		queued(t, a, "a", 1)
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-gone; !errors.Is(err, locker.ErrClosed) {
			t.Errorf("Lock of a Locker that was closed meanwhile: %v", err)
		}
		if _, err := b.TryLock(context.Background(), "c"); !errors.Is(err, locker.ErrClosed) {
			t.Errorf("TryLock after Close: %v", err)
		}
		if err := other.Renew(soon(t)); err != nil {
			t.Errorf("Renew after Close: %v", err)
		}
		unlock(t, other)
		unlock(t, held)
	})
}
