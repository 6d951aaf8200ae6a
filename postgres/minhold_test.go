package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// lockFor locks a with a minimum hold. The function requires that this is over.
func lockFor(tb testing.TB, l locker.Locker, hold time.Duration, opts ...locker.Option) (held *locker.Lock, over func(who string)) {
	tb.Helper()
	began := time.Now()
	return lock(tb, l, "a", append(opts, locker.WithMinHold(hold))...), func(who string) {
		tb.Helper()
		if after := time.Since(began); after < hold {
			tb.Errorf("%s has the lock after %v, and its minimum hold is %v", who, after, hold)
		}
	}
}

// Goal: a waiter gets the lock at the end of its minimum hold, whether that is longer than
// the TTL or shorter, and whoever stands before it. Method: waiters whose processes are
// dead, too many to give each time to claim the lock, or one that hangs and never asks.
func TestWaiterGetsALeaseAtTheEndOfItsMinimumHold(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{2 * time.Second, long} {
		for before, n := range map[string]int{"dead": 100, "hanging": 1} {
			t.Run(before+", "+ttl.String(), func(t *testing.T) {
				t.Parallel()
				waiterGetsALease(t, ttl, before, n)
			})
		}
	}
}

func waiterGetsALease(t *testing.T, ttl time.Duration, before string, n int) {
	url := database(t)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	hanging := begun(t, url)
	ask[bool](t, hanging, `SELECT pg_advisory_lock(1819239276, hashtext('hanging')) IS NOT NULL`)
	held, over := lockFor(t, a, 3*time.Second, locker.WithTTL(ttl))
	exec(t, connect(t, url), `INSERT INTO lockstile_queue SELECT 'a', -i, 'x' || i, $1, now() + interval '1 hour' FROM generate_series(1, $2) i`, before, n)
	got := make(chan *locker.Lock, 1)
	go func() {
		second, err := b.Lock(soon(t), "a", locker.WithTTL(long))
		if err != nil {
			t.Errorf("Lock behind a %s waiter: %v", before, err)
		}
		got <- second
	}()
	queued(t, a, "a", n+1)
	unlock(t, held)
	if second := <-got; second != nil {
		over("a waiter")
		unlock(t, second)
	}
	_ = hanging.Rollback(soon(t))
}

// Goal: a keep that is sent again, because its answer was lost, is no longer, and no
// shorter. A release without one, of a clean-up, leaves it alone. Method: the statements
// themselves.
func TestKeepThatIsSentAgainIsTheSame(t *testing.T) {
	url := database(t)
	newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	const row = `SELECT coalesce(min(value || ' until ' || expires), 'none') FROM lockstile_lease`
	exec(t, admin, `SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)`)
	exec(t, admin, `SELECT lockstile_release_5('a', 'mine', false, 0, 60000)`)
	kept := query[string](t, admin, row)
	for keep, want := range map[int]int{1: 0, 30000: 0, 600000: 0, 0: -1} {
		if code := query[int](t, admin, `SELECT lockstile_release_5('a', 'mine', true, 0, $1)`, keep); code != want {
			t.Errorf("a keep of %d ms is answered with %d, want %d", keep, code, want)
		}
		if again := query[string](t, admin, row); again != kept {
			t.Errorf("a keep of %d ms: %s, was %s", keep, again, kept)
		}
	}
	if code := query[int](t, admin, `SELECT code FROM lockstile_renew_5(ARRAY['a'], ARRAY['mine'], ARRAY[600000], false)`); code != -1 {
		t.Errorf("a renewal is answered with %d", code)
	}
	if again := query[string](t, admin, row); again != kept {
		t.Errorf("after a renewal: %s, was %s", again, kept)
	}
	if code := query[int](t, admin, `SELECT lockstile_release_5('b', 'other', false, 0, 60000)`); code != -1 {
		t.Errorf("a keep of what is not held is answered with %d", code)
	}
}

// Goal: what is left of a minimum hold is not cut off. The database counts in milliseconds.
func TestKeepOfAFractionIsNoRelease(t *testing.T) {
	url := database(t)
	if err := postgres.Keep(soon(t), newLocker(t, url, postgres.Options{}), "a", 1); err != nil {
		t.Fatal(err)
	}
	if n := query[int](t, connect(t, url), `SELECT count(*)::int FROM lockstile_lease`); n != 1 {
		t.Error("it was given back at once")
	}
}

// Goal: a keep waits for a renewal that has not committed yet, and is the last word.
// Method: a transaction by hand renews, and commits only when somebody waits.
func TestKeepWaitsForARenewalUnderWay(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	newLocker(t, url, postgres.Options{})
	exec(t, admin, `SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)`)
	renewal := begun(t, url)
	ask[int](t, renewal, `SELECT code FROM lockstile_renew_5(ARRAY['a'], ARRAY['mine'], ARRAY[600000], false)`)
	done := make(chan error, 1)
	go func() {
		_, err := admin.Exec(soon(t), `SELECT lockstile_release_5('a', 'mine', false, 0, 60000)`)
		done <- err
	}()
	eventually(t, func() string {
		select {
		case err := <-done:
			t.Fatalf("the keep did not wait: %v", err)
		default:
		}
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE NOT granted`) == 0 {
			return "the keep does not wait"
		}
		return ""
	})
	if err := errors.Join(renewal.Commit(soon(t)), <-done); err != nil {
		t.Fatal(err)
	}
	if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_lease WHERE value <> 'mine' AND expires < clock_timestamp() + interval '60 seconds'`); n != 1 {
		t.Error("the renewal has the last word")
	}
}

// Goal: a keep that is sent again over another connection is told that it has worked.
func TestUnlockWhoseConnectionBreaksKeepsTheLock(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool, w := wired(t, url)
	a, err := postgres.New(pool, postgres.Options{})
	a = ready(t, a, err)
	warmUp(t, a, pool)
	held, over := lockFor(t, a, 3*time.Second, locker.WithTTL(long))
	w.cut(dying)
	w.repair() // new connections
	unlock(t, held)
	second := lock(t, newLocker(t, url, postgres.Options{}), "a")
	over("another process")
	unlock(t, second)
}
