package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
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
		exec(t, admin, `INSERT INTO lockstile_queue SELECT $1, -i, 'x' || i, $1, now() + interval '1 hour' FROM generate_series(1, $2) i`,
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

// Goal: a waiter goes before a newcomer also when nobody passes the lock on, because its
// holder died.
func TestNewcomerDoesNotOvertakeWaitersWhenALeaseEnds(t *testing.T) {
	url := database(t)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	lock(t, a, "a", locker.WithTTL(long))
	exec(t, admin, `INSERT INTO lockstile_queue VALUES ('a', 0, 'x', '', now() + interval '1 hour')`)
	exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp()`)
	for range 2 { // where nobody else waits the reservation alone keeps it
		if _, err := b.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock while somebody waits: %v", err)
		}
		exec(t, admin, `UPDATE lockstile_lease SET expires = now() + interval '1 hour' WHERE reserved`)
	}
	if first := query[string](t, admin, `SELECT value FROM lockstile_lease WHERE reserved`); first != "x" {
		t.Errorf("the lock is reserved for %q", first)
	}
}

// Goal: a waiter that has been told to look at the end of the lease, and listens, is not
// taken for dead before. Method: the statements themselves, and in the tables ten minutes go by.
func TestWaiterThatListensIsAliveUntilTheLeaseEnds(t *testing.T) {
	url := database(t)
	a, admin := byHand(t, url), connect(t, url)
	listening, err := admin.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Release()
	if _, err := listening.Exec(soon(t), `SELECT pg_advisory_lock(1819239276, hashtext('a channel'))`); err != nil {
		t.Fatal(err)
	}
	a.ask("holder", 0, false) // for ten minutes
	exec(t, admin, `SELECT lockstile_acquire_5('a', 'waiter', 600000, '', true, 'a channel', 0, 0, false)`)
	for _, table := range []string{"lockstile_lease SET expires = expires", "lockstile_queue SET patient = patient"} {
		exec(t, admin, `UPDATE `+table+` - interval '595 s'`)
	}
	a.free("holder", false)
	a.want(t, "the release", "waiter?")
	exec(t, admin, `INSERT INTO lockstile_queue SELECT 'a', i, 'x' || i, '', now() + interval '1 hour' FROM generate_series(1, 7200) i`)
	exec(t, admin, `SELECT lockstile_acquire_5('a', 'the last', 600000, '', true, 'a channel', 0, 0, false)`)
	if !query[bool](t, admin, `SELECT patient > clock_timestamp() + interval '50 minutes' FROM lockstile_queue WHERE value = 'the last'`) {
		t.Error("a waiter is taken for dead before all those ahead of it could have claimed the lock")
	}
}

// Goal: a release, and a waiter that gives up its turn, reserve the lock for the next
// waiter in another process.
func TestReleaseReservesTheLockForTheFirstWaiter(t *testing.T) {
	url := database(t)
	held := lock(t, newLocker(t, url, postgres.Options{}), "a")
	admin := connect(t, url)
	exec(t, admin, `INSERT INTO lockstile_queue SELECT 'a', i, 'x' || i, '', now() + interval '1 hour' FROM generate_series(1, 2) i`)
	unlock(t, held)
	for _, want := range []string{"x1", "x2", ""} {
		if first := query[string](t, admin, `SELECT coalesce(min(value), '') FROM lockstile_lease WHERE reserved`); first != want {
			t.Errorf("the lock is reserved for %q, not %q", first, want)
		}
		exec(t, admin, `SELECT lockstile_release_5('a', $1, true, 0, 0)`, want)
	}
}

// Goal: a waiter has one place, also if it was not told of it, and keeps it. Method:
// the statements themselves: asked again with the ticket, without it, and after a
// crash has emptied the queue.
func TestWaiterThatAsksAgainKeepsItsPlace(t *testing.T) {
	url := database(t)
	held := lock(t, newLocker(t, url, postgres.Options{}), "a", locker.WithTTL(long))
	admin := connect(t, url)
	wait := func(value string, ticket int64) int64 {
		t.Helper()
		return query[int64](t, admin, `SELECT (lockstile_acquire_5('a', $1, 600000, '', true, '', 600000, $2, false))._ticket`, value, ticket)
	}
	first, second := wait("first", 0), wait("second", 0)
	if second <= first {
		t.Errorf("ticket %d follows %d", second, first)
	}
	for _, ticket := range []int64{first, -1} {
		if again := wait("first", ticket); again != first {
			t.Errorf("ticket %d became %d", first, again)
		}
	}
	if again := wait("second", -1); again != second {
		t.Errorf("ticket %d became %d", second, again)
	}
	exec(t, admin, `TRUNCATE lockstile_queue`)
	if newcomer := wait("newcomer", 0); newcomer <= second {
		t.Errorf("after a crash ticket %d was given out, %d before it", newcomer, second)
	}
	wait("first", first)
	if value := query[string](t, admin, `SELECT value FROM lockstile_queue ORDER BY ticket LIMIT 1`); value != "first" {
		t.Errorf("after a crash %q is first", value)
	}
	exec(t, admin, `UPDATE lockstile_queue SET ticket = 1::bigint << 60 WHERE value = 'newcomer'`)
	const far int64 = 1 << 60
	if behind := wait("behind", 0); behind <= far {
		t.Errorf("where the clock went back, ticket %d follows %d", behind, far)
	}
	exec(t, admin, `UPDATE lockstile_queue SET patient = '-infinity' WHERE value = 'newcomer'`) // from now on a sweep may remove it
	wait("newcomer", far)
	if !query[bool](t, admin, `SELECT patient BETWEEN clock_timestamp() AND clock_timestamp() + interval '10 minutes' FROM lockstile_queue WHERE value = 'newcomer'`) {
		t.Error("a waiter that has just asked again is not taken for alive for the ten minutes that it has said")
	}
	unlock(t, held)
}

// Goal: a waiter has one place, though the answer that would have told it its ticket was lost. Method:
// the request that queues arrives, its connection breaks, and it is sent again. Those who look would
// count two waiters.
func TestWaiterThatWasNotToldOfItsPlaceHasNoSecondOne(t *testing.T) {
	t.Parallel()
	url := database(t)
	other := newLocker(t, url, postgres.Options{})
	held, first := lock(t, other, "a", locker.WithTTL(long)), lock(t, other, "b", locker.WithTTL(long))
	pool, w := wired(t, url)
	l, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	got := make(chan error, 2)
	wait := func(name, holder string) {
		lock, err := l.Lock(soon(t), name, locker.WithHolder(holder))
		if err == nil {
			err = lock.Unlock(context.Background())
		}
		got <- err
	}
	go wait("b", "another") // so that the process listens, and the next request queues
	queued(t, other, "b", 1)
	eventually(t, func() string { return lent(pool, 3) }) // the sweep needed one, and the two requests
	before := pool.Stat().AcquireCount()
	w.cutAt("the waiter", dying)
	go wait("a", "the waiter")
	eventually(t, func() string { return lent(pool, before+2) })
	if info, err := other.Inspect(soon(t), "a"); err != nil || info.Waiters != 1 {
		t.Errorf("one waits, and %d are seen to (%v)", info.Waiters, err)
	}
	unlock(t, held)
	unlock(t, first)
	for range 2 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

// lent says what is missing until a pool has lent so many connections, and has all of them back.
func lent(pool *pgxpool.Pool, times int64) string {
	if s := pool.Stat(); s.AcquireCount() < times || s.AcquiredConns() > 0 {
		return fmt.Sprintf("%d connections were lent, want %d, and %d are in use", s.AcquireCount(), times, s.AcquiredConns())
	}
	return ""
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
	channel := query[string](t, admin, `SELECT channel FROM lockstile_queue`)
	exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1819239276
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	eventually(t, func() string { // it has come back under another address
		if query[string](t, admin, `SELECT channel FROM lockstile_queue`) == channel {
			return "the waiter did not notice that its connection broke"
		}
		return ""
	})
	unlock(t, held)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: a waiter that may not listen looks, and has its place in the queue meanwhile.
// Method: its role may have no other connection than the pool's. When nobody waits any
// more it tries to listen again, for connections may be free by then. One that listened
// before looks as well.
func TestWaitersLookWhereTheRoleMayHaveNoOtherConnection(t *testing.T) {
	t.Parallel()
	url := database(t)
	a := newLocker(t, url, postgres.Options{})
	role := roleWith(t, url, `CONNECTION LIMIT 1`)
	b := opened(t, "a/leases", connect(t, strings.Replace(url, "postgres@", role+"@", 1)+"&pool_max_conns=1"))
	admin := connect(t, url)
	for _, listens := range []bool{false, true} {
		held := lock(t, a, "a", locker.WithTTL(long))
		got := waits(t, b, "a")
		queued(t, a, "a", 1)
		if has := query[bool](t, admin, `SELECT channel <> '' FROM lockstile_queue`); has != listens {
			t.Errorf("the waiter listens: %v, want %v", has, listens)
		}
		if listens {
			exec(t, admin, `ALTER ROLE `+role+` CONNECTION LIMIT 1`)
			exec(t, admin, `SELECT pg_terminate_backend(l.pid, 60000) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
				WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.classid = 1819239276`)
			eventually(t, func() string {
				if query[bool](t, admin, `SELECT channel <> '' FROM lockstile_queue`) {
					return "the waiter has not been told that it cannot listen any more"
				}
				return ""
			})
		}
		unlock(t, held)
		if err := <-got; err != nil {
			t.Error(err)
		}
		exec(t, admin, `ALTER ROLE `+role+` CONNECTION LIMIT -1`)
	}
}

// Goal: the same where a pooler has no connection left: it says so in words of its own.
func TestWaitersLookWhereThePoolerHasNoOtherConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a pooler")
	}
	t.Parallel()
	s := shared(t)
	name := newDatabase(t, s, "ENCODING 'UTF8'")
	a := newLocker(t, s.URL(name), postgres.Options{})
	bouncer := testserver.PgBouncer(t, s, "transaction", "max_client_conn = 1")
	b := opened(t, "a/leases", connect(t, bouncer.URL(name)+"&pool_max_conns=1"))
	eventually(t, func() string { // the pooler may count one that has just been closed
		if err := tried(t, b, "b"); err != nil {
			return err.Error()
		}
		return "" // it has the one connection
	})
	held := lock(t, a, "a", locker.WithTTL(long))
	got := waits(t, b, "a")
	queued(t, a, "a", 1)
	unlock(t, held)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: a waiter whose connection for notifications cannot be opened again, though requests go on
// over others, does not sleep beside a free lock for the rest of a lease. Method: no new connection
// can be made (the name of the server is not found any more), and the server ends the one that
// listens.
//
// Interleaving: the release tells a connection that is gone; the next waiter in the queue is far
// behind, and no lease ends before an hour.
func TestWaiterLooksWhileItsConnectionCannotBeOpenedAgain(t *testing.T) {
	t.Parallel()
	url := database(t)
	admin := connect(t, url)
	holder := newLocker(t, url, postgres.Options{})
	var gone atomic.Bool
	pool := poolWith(t, url+"&application_name=deaf", func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, to string) (net.Conn, error) {
			if gone.Load() {
				return nil, &net.DNSError{Err: "no such host", Name: to, IsNotFound: true}
			}
			return dial(ctx, network, to)
		}
	})
	l := opened(t, "a/leases", pool)
	unlock(t, lock(t, l, "b")) // over a connection that goes on
	held := lock(t, holder, "a", locker.WithTTL(locker.MaxTTL))
	got := make(chan error, 1)
	go func() {
		second, err := l.Lock(soon(t), "a", locker.WithTTL(locker.MaxTTL))
		if err == nil {
			err = second.Unlock(context.Background())
		}
		got <- err
	}()
	queued(t, holder, "a", 1)
	gone.Store(true)
	if n := query[int](t, admin, `SELECT count(pg_terminate_backend(pid, 60000))::int FROM pg_stat_activity
		WHERE application_name = 'deaf' AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1819239276)`); n != 1 {
		t.Fatalf("%d connections listen", n)
	}
	unlock(t, held)
	if err := <-got; err != nil {
		t.Errorf("Lock beside a lock that is free: %v", err)
	}
}
