package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// counting adds one to the counter, in two statements between which nobody else may come. It is called under
// the lock, and under its token.
func counting(t *testing.T, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, token uint64,
) {
	var v, last int64
	if err := q.QueryRow(soon(t), `SELECT v, token FROM counter`).Scan(&v, &last); err != nil {
		t.Error(err)
		return
	}
	if uint64(last) >= token {
		t.Errorf("token %d follows %d", token, last)
	}
	if err := q.QueryRow(soon(t), `UPDATE counter SET v = $1, token = $2 RETURNING v`, v+1, int64(token)).Scan(&v); err != nil {
		t.Error(err)
	}
}

// ways are the ways to lock a name of a database. Each counts once under the lock, in a process of its own.
func ways(t *testing.T, url string) map[string]func() {
	counts := func(l locker.Locker, pool *pgxpool.Pool) func() {
		return func() {
			held, err := l.Lock(soon(t), "a", locker.WithTTL(long))
			if err != nil {
				t.Error(err)
				return
			}
			counting(t, pool, uint64(held.Token()))
			unlock(t, held)
		}
	}
	pool := connect(t, url)
	return map[string]func(){
		"New":        counts(newLocker(t, url, postgres.Options{}), pool),
		"NewSession": counts(newSession(t, url), pool),
		"LockTx": func() {
			err := pgx.BeginFunc(soon(t), pool, func(tx pgx.Tx) error {
				token, err := postgres.LockTx(soon(t), tx, "a")
				if err == nil {
					counting(t, tx, uint64(token))
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		},
	}
}

// Goal: one name is one lock, however it is taken. Method: a counter that is read and then written, as a new user
// would try it. Until now a process with New and one with LockTx counted 1,017 of 1,563.
func TestOneNameIsOneLockHoweverItIsTaken(t *testing.T) {
	t.Parallel()
	const each = 60
	names := []string{"New", "NewSession", "LockTx"}
	for _, together := range [][]string{{"New", "LockTx"}, {"New", "NewSession"}, {"NewSession", "LockTx"}, names} {
		t.Run(strings.Join(together, " and "), func(t *testing.T) {
			url := database(t)
			admin := connect(t, url)
			exec(t, admin, `CREATE TABLE counter (v bigint, token bigint); INSERT INTO counter VALUES (0, 0)`)
			count := ways(t, url)
			var all sync.WaitGroup
			for _, way := range together {
				all.Go(func() {
					for range each {
						count[way]()
					}
				})
			}
			all.Wait()
			if n := query[int](t, admin, `SELECT v::int FROM counter`); n != each*len(together) {
				t.Errorf("of %d, %d were counted", each*len(together), n)
			}
		})
	}
}

// others try a name and wait for it in the ways that are no leases: each returns whether it was granted, and gives the
// lock back.
var others = map[string]struct {
	try, wait func(t *testing.T, url string) error
}{
	"LockTx": {
		func(t *testing.T, url string) error { return inTx(t, url+"&lock_timeout=1", false) },
		func(t *testing.T, url string) error { return inTx(t, url, false) },
	},
	"LockTxShared": {
		func(t *testing.T, url string) error { return inTx(t, url+"&lock_timeout=1", true) },
		func(t *testing.T, url string) error { return inTx(t, url, true) },
	},
	"NewSession": {
		func(t *testing.T, url string) error { return given(newSession(t, url).TryLock(soon(t), "a")) },
		func(t *testing.T, url string) error { return given(newSession(t, url).Lock(soon(t), "a")) },
	},
	"NewSession, shared": {
		func(t *testing.T, url string) error {
			return given(newSession(t, url).TryLock(soon(t), "a", locker.WithShared()))
		},
		func(t *testing.T, url string) error {
			return given(newSession(t, url).Lock(soon(t), "a", locker.WithShared()))
		},
	},
}

func inTx(t *testing.T, url string, shared bool) error {
	tx := begun(t, url)
	defer func() { _ = tx.Rollback(context.Background()) }()
	var err error
	if shared {
		_, err = postgres.LockTxShared(soon(t), tx, "a")
	} else {
		_, err = postgres.LockTx(soon(t), tx, "a")
	}
	return err
}

func given(l *locker.Lock, err error) error {
	if err == nil {
		err = l.Unlock(context.Background())
	}
	return err
}

// keyed is how many have the advisory key of the name, and how many wait for it.
const keyed = `SELECT count(*)::int FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database()
	AND l.locktype = 'advisory' AND l.objsubid = 1 AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended('a', 0)`

// keepsOut has each of the others try a name and wait for it, while what it is called for keeps them out, until let lets
// them in.
func keepsOut(t *testing.T, hold func(t *testing.T, url string) (let func())) {
	t.Helper()
	for _, how := range slices.Sorted(maps.Keys(others)) {
		other := others[how]
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			admin := connect(t, url)
			newLocker(t, url, postgres.Options{})
			newSession(t, url)
			let := hold(t, url)
			if err := other.try(t, url); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("a try: %v", err)
			}
			if query[int](t, admin, keyed) > 0 {
				t.Error("whoever was refused has kept the key")
			}
			got := make(chan error, 1)
			go func() { got <- other.wait(t, url) }()
			eventually(t, func() string {
				staysOut(t, got, 0)
				if query[int](t, admin, keyed) == 0 {
					return "nobody waits with the key"
				}
				return ""
			})
			staysOut(t, got, 300*time.Millisecond) // three looks
			let()
			if err := <-got; err != nil {
				t.Error(err)
			}
		})
	}
}

// staysOut fails if a wait ends within a time.
func staysOut(t *testing.T, got <-chan error, within time.Duration) {
	t.Helper()
	select {
	case err := <-got:
		t.Fatalf("it was let in: %v", err)
	case <-time.After(within):
	}
}

// Goal: a lease keeps everybody else out, until it is given back.
func TestLeaseKeepsTransactionsAndSessionsOut(t *testing.T) {
	t.Parallel()
	keepsOut(t, func(t *testing.T, url string) func() {
		held := lock(t, newLocker(t, url, postgres.Options{}), "a", locker.WithTTL(long))
		return func() { unlock(t, held) }
	})
}

// Goal: a slot, which goes with no other kind, keeps everybody else out.
func TestSlotKeepsTransactionsAndSessionsOut(t *testing.T) {
	t.Parallel()
	keepsOut(t, func(t *testing.T, url string) func() {
		held := lock(t, newLocker(t, url, postgres.Options{}), "a", locker.WithTTL(long), locker.WithSlots(2))
		return func() { unlock(t, held) }
	})
}

// Goal: a lock that is kept for the rest of a minimum hold is kept from everybody.
func TestMinimumHoldKeepsTransactionsAndSessionsOut(t *testing.T) {
	t.Parallel()
	keepsOut(t, func(t *testing.T, url string) func() {
		exec(t, connect(t, url), `SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)`)
		exec(t, connect(t, url), `SELECT lockstile_release_5('a', 'mine', false, 0, 3600000)`)
		return func() { exec(t, connect(t, url), `UPDATE lockstile_lease SET expires = clock_timestamp()`) }
	})
}

// Goal: what is reserved for a waiter is not given to others.
func TestReservationKeepsTransactionsAndSessionsOut(t *testing.T) {
	t.Parallel()
	keepsOut(t, func(t *testing.T, url string) func() {
		admin := connect(t, url)
		exec(t, admin, `SELECT lockstile_acquire_5('a', 'first', 600000, '', false, '', 0, 0, false)`)
		exec(t, admin, `SELECT lockstile_acquire_5('a', 'waits', 600000, '', true, '', 600000, 0, false)`)
		exec(t, admin, `SELECT lockstile_release_5('a', 'first', false, 0, 0)`)
		exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp() + interval '1 hour' WHERE reserved`)
		return func() { exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp()`) }
	})
}

// renewing returns a transaction in which a lease of "a" is renewed, for so many milliseconds. Others see that it
// ends soon. On a machine that stalls for longer it has ended before it is renewed: then it is tried again.
func renewing(t *testing.T, url string, admin *pgxpool.Pool, soonEnds string, ttl int64) pgx.Tx {
	t.Helper()
	exec(t, admin, `SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)`)
	for {
		exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp() + interval '`+soonEnds+`'`)
		renewal := begun(t, url)
		if ask[int](t, renewal, `SELECT code FROM lockstile_renew_5(ARRAY['a'], ARRAY['mine'], ARRAY[$1::bigint], false)`, ttl) == 1 {
			return renewal
		}
		if err := renewal.Rollback(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// Goal: a renewal that is under way when the lease ends is waited for.
//
// Interleaving: the holder's renewal has locked its row and is on its way to the disk. The lease that others can see
// ends. Whoever only reads that takes the lock; then the renewal is answered, and two believe.
func TestRenewalUnderWayKeepsTransactionsAndSessionsOut(t *testing.T) {
	t.Parallel()
	for _, how := range slices.Sorted(maps.Keys(others)) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			admin := connect(t, url)
			newLocker(t, url, postgres.Options{})
			newSession(t, url)
			renewal := renewing(t, url, admin, "2 seconds", 600000)
			eventually(t, func() string {
				if query[bool](t, admin, `SELECT expires > clock_timestamp() FROM lockstile_lease`) {
					return "the lease that others see has not ended"
				}
				return ""
			})
			got := make(chan error, 1)
			go func() { got <- others[how].wait(t, url) }()
			eventually(t, func() string {
				staysOut(t, got, 0)
				if !query[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted)`) {
					return "nobody waits for the renewal"
				}
				return ""
			})
			if err := renewal.Commit(soon(t)); err != nil {
				t.Fatal(err)
			}
			staysOut(t, got, 300*time.Millisecond) // three looks
			exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp()`)
			if err := <-got; err != nil {
				t.Error(err)
			}
		})
	}
}

// Goal: whoever has the lock in a transaction or a session keeps leases of all kinds out, which look until it is free.
func TestTransactionsAndSessionsKeepLeasesOut(t *testing.T) {
	t.Parallel()
	for what, hold := range map[string]func(t *testing.T, url string) (end func()){
		"LockTx": func(t *testing.T, url string) func() {
			tx := begun(t, url)
			if _, err := postgres.LockTx(soon(t), tx, "a"); err != nil {
				t.Fatal(err)
			}
			return func() { _ = tx.Commit(soon(t)) }
		},
		"NewSession": func(t *testing.T, url string) func() {
			held := lock(t, newSession(t, url), "a", locker.WithTTL(long))
			return func() { unlock(t, held) }
		},
	} {
		for kind, opts := range map[string][]locker.Option{"exclusive": nil, "shared": {locker.WithShared()}, "slots": {locker.WithSlots(2)}} {
			t.Run(what+" and "+kind, func(t *testing.T) {
				t.Parallel()
				url := database(t)
				l, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
				end := hold(t, url)
				if held, err := l.TryLock(soon(t), "a", opts...); !errors.Is(err, locker.ErrTaken) {
					t.Fatalf("TryLock: %v, %v", held, err)
				}
				got, second := waits(t, l, "a", opts...), waits(t, b, "a", opts...)
				queued(t, l, "a", 2)
				end()
				for _, got := range []<-chan error{got, second} {
					if err := <-got; err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// Goal: readers go together however they read.
func TestReadersGoTogetherHoweverTheyRead(t *testing.T) {
	url := database(t)
	lease := lock(t, newLocker(t, url, postgres.Options{}), "a", locker.WithShared(), locker.WithTTL(long))
	session := lock(t, newSession(t, url), "a", locker.WithShared(), locker.WithTTL(long))
	tx := begun(t, url)
	number, err := postgres.LockTxShared(soon(t), tx, "a")
	if err != nil || uint64(number) <= uint64(session.SharedToken()) || session.SharedToken() <= lease.SharedToken() {
		t.Errorf("numbers %d, %d and %d, %v", lease.SharedToken(), session.SharedToken(), number, err)
	}
	unlock(t, lock(t, newLocker(t, url, postgres.Options{}), "a", locker.WithShared()))
	if err := tx.Rollback(soon(t)); err != nil {
		t.Error(err)
	}
	unlock(t, lease)
	unlock(t, session)
}

// Goal: a release reserves nothing for a lease's waiter while a transaction waits with the key, and the waiter is told that
// it has to look: it gets the lock soon after, and not when the lease of a holder that has long gone would have ended.
//
// Interleaving: a lease is held, another process waits for it, and then a transaction. The lease is given back.
func TestReleaseThatMayReserveNothingHasTheWaiterLook(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b, admin := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{}), connect(t, url)
	held := lock(t, a, "a", locker.WithTTL(time.Hour))
	got := waits(t, b, "a")
	queued(t, a, "a", 1)
	locked, let := make(chan error, 1), make(chan struct{})
	go func() {
		tx := begun(t, url)
		_, err := postgres.LockTx(soon(t), tx, "a")
		locked <- err
		<-let
		locked <- tx.Rollback(context.Background())
	}()
	eventually(t, func() string {
		if query[int](t, admin, keyed) == 0 {
			return "the transaction does not wait with the key"
		}
		return ""
	})
	unlock(t, held)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	staysOut(t, got, 300*time.Millisecond)
	close(let)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := <-locked; err != nil { // before its connection is closed
		t.Error(err)
	}
}

// Goal: nobody believes in a lease that ended under its holder when a transaction has the lock.
func TestLeaseThatEndsIsLostBeforeATransactionHasTheLock(t *testing.T) {
	t.Parallel()
	url := database(t)
	held := brief(t, newLocker(t, url, postgres.Options{}), "a", locker.WithTTL(time.Second), locker.WithoutRenewal())
	if err := inTx(t, url, false); err != nil {
		t.Fatal(err)
	}
	if err := held.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the holder still believed when the transaction was granted the lock: %v", err)
	}
}

// Goal: a transaction that takes the lock after a lease that has ended keeps nobody from cleaning up after that, or from
// asking. Method: it goes on, and the holder, which was paused, comes back.
func TestTransactionAfterALeaseThatEndedKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			url := database(t)
			l, admin := newLocker(t, url, postgres.Options{}), connect(t, url+"&statement_timeout=8s")
			exec(t, admin, `SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false, $1)`, map[bool]int{true: -1}[shared])
			exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp()`)
			tx := begun(t, url)
			if _, err := postgres.LockTx(soon(t), tx, "a"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second) // less than a statement may take
			defer cancel()
			for _, opts := range [][]locker.Option{nil, {locker.WithShared()}} {
				if _, err := l.TryLock(ctx, "a", opts...); !errors.Is(err, locker.ErrTaken) {
					t.Errorf("TryLock: %v", err)
				}
			}
			exec(t, admin, `SELECT lockstile_release_5('a', 'mine', true, 60000, 0, $1)`, shared)
			if err := tx.Rollback(soon(t)); err != nil {
				t.Fatal(err)
			}
			unlock(t, lock(t, l, "a"))
		})
	}
}

// Goal: an attempt whose lease has ended, and which somebody else has had the lock after, is not given its old token again.
//
// Interleaving: a lease is granted and ends. A transaction takes the lock, with a greater token, and commits. It
// leaves no trace. The request for the lease is sent again.
func TestLeaseThatIsAskedForAgainAfterItsEndHasANewToken(t *testing.T) {
	url := database(t)
	newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	asks := func() int64 {
		return query[int64](t, admin, `SELECT (lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false))._token`)
	}
	first := asks()
	if again := asks(); again != first {
		t.Errorf("token %d, and %d when it is asked for again", first, again)
	}
	exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp()`)
	tx := begun(t, url)
	between, err := postgres.LockTx(soon(t), tx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if token := asks(); token != 0 {
		t.Errorf("it is granted beside a transaction that has the lock, with token %d", token)
	}
	if err := tx.Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	if token := asks(); token <= int64(between) {
		t.Errorf("token %d follows %d", token, between)
	}
}

// Goal: a transaction that may not see a lease does not lock. Method: the levels above read committed, before there was a
// lease and after.
func TestLockTxThatMayNotSeeLeasesIsRefused(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	for _, used := range []bool{false, true} {
		for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
			tx, err := connect(t, url).BeginTx(soon(t), pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			ask[int](t, tx, `SELECT 1`) // its picture is from before
			if used {
				unlock(t, lock(t, l, "another"))
			}
			_, err = postgres.LockTx(soon(t), tx, "a")
			if refused := errors.Is(err, locker.ErrRefused) && strings.Contains(err.Error(), "read committed"); refused != used || err != nil && !used {
				t.Errorf("%s, where leases are used: %v: %v", level, used, err)
			}
			_ = tx.Rollback(soon(t))
		}
	}
}

// Goal: what ends a wait for a transaction's lock ends one for a lease, too.
func TestLockTimeoutEndsTheWaitForALease(t *testing.T) {
	url := database(t)
	lock(t, newLocker(t, url, postgres.Options{}), "a", locker.WithTTL(long))
	var reply *pgconn.PgError
	if err := inTx(t, url+"&lock_timeout=100", false); !errors.Is(err, locker.ErrTaken) || !errors.As(err, &reply) || reply.Code != "55P03" {
		t.Errorf("LockTx: %v", err)
	}
}
