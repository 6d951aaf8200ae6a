package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// connections waits until so many connections have a name in the server.
func connections(t *testing.T, admin *pgxpool.Pool, name string, want func() int32) {
	t.Helper()
	eventually(t, func() string {
		if n, want := query[int32](t, admin, `SELECT count(*)::int FROM pg_stat_activity WHERE application_name = $1`, name), want(); n != want {
			return fmt.Sprintf("%d connections of %s, want %d", n, name, want)
		}
		return ""
	})
}

// listening is how many connections of this database listen.
const listening = `SELECT count(*)::int FROM pg_locks l JOIN pg_database d ON d.oid = l.database
	WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.classid = 1819239276 AND l.granted`

// Goal: what was opened beside the pool is closed when the Locker is, or with the last of its
// locks. Method: a lock that was waited for and renewed, so that all there can be is open.
func TestClosedLockerKeepsNoConnectionBesideThePools(t *testing.T) {
	t.Parallel()
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a, admin, name := open(t, url), connect(t, url), fmt.Sprint("closed", databases.Add(1))
		pool := connect(t, url+"&application_name="+name)
		b := opened(t, t.Name(), pool)
		unlock(t, lock(t, b, "b", locker.WithTTL(long)))
		first, got := lock(t, a, "a", locker.WithTTL(long)), make(chan *locker.Lock, 1)
		go func() {
			second, err := b.Lock(soon(t), "a", locker.WithTTL(long))
			if err != nil {
				t.Error(err)
			}
			got <- second
		}()
		queued(t, a, "a", 1)
		unlock(t, first)
		held := <-got
		if held == nil {
			return
		}
		if err := held.Renew(soon(t)); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		unlock(t, held)
		if l, ok := b.(*postgres.SessionLocker); ok {
			if open, _ := postgres.Connections(l); open > 0 {
				t.Errorf("%d connections are kept for the next lock", open)
			}
		}
		connections(t, admin, name, func() int32 { return pool.Stat().TotalConns() })
	})
}

// Goal: the connection on which waiters are notified is closed when nobody waits, whatever the pool
// does about contexts that end. Method: pgx may also be told to send a cancel request then.
func TestListeningEndsWhenNobodyWaits(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*pgxpool.Config){
		"by default": func(*pgxpool.Config) {},
		"with cancel requests": func(c *pgxpool.Config) {
			c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
				return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Hour}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			a, admin := newLocker(t, url, postgres.Options{}), connect(t, url)
			b := opened(t, "a/leases", poolWith(t, url, set))
			held := lock(t, a, "a", locker.WithTTL(long))
			got := waits(t, b, "a")
			queued(t, a, "a", 1)
			if n := query[int](t, admin, listening); n != 1 {
				t.Errorf("%d connections listen", n)
			}
			unlock(t, held)
			if err := <-got; err != nil {
				t.Error(err)
			}
			eventually(t, func() string {
				if query[int](t, admin, listening) > 0 {
					return "a connection listens, though nobody waits"
				}
				return ""
			})
		})
	}
}

// Goal: a waiter is told of its turn also where the application has a handler for its own
// notifications, which it would get in our place.
func TestWaiterIsToldWhereThePoolHasAHandlerForNotifications(t *testing.T) {
	t.Parallel()
	url := database(t)
	a := newLocker(t, url, postgres.Options{})
	var stray atomic.Int64
	b := opened(t, "a/leases", poolWith(t, url, func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { stray.Add(1) }
	}))
	held := lock(t, a, "a", locker.WithTTL(long))
	got := waits(t, b, "a")
	queued(t, a, "a", 1)
	unlock(t, held)
	if err := <-got; err != nil || stray.Load() > 0 {
		t.Errorf("Lock: %v; the application got %d of our notifications", err, stray.Load())
	}
}

// Goal: a waiter does not depend on a connection that has fallen silent. Method: the network
// loses what arrives on it; the waiter then listens on another one.
func TestSilentListeningConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, admin := newLocker(t, url, postgres.Options{}), connect(t, url)
	pool, w := wired(t, url+"&pool_max_conns=1")
	b := opened(t, "a/leases", pool)
	unlock(t, lock(t, b, "b")) // the pool has its connection, and the next one listens
	held := lock(t, a, "a", locker.WithTTL(long))
	got := waits(t, b, "a")
	queued(t, a, "a", 1)
	const channel = `SELECT channel FROM lockstile_queue`
	first := query[string](t, admin, channel)
	w.cutLast(deaf)
	eventually(t, func() string {
		if query[string](t, admin, channel) == first {
			return "the waiter listens on a connection on which nothing arrives"
		}
		return ""
	})
	unlock(t, held)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: a waiter that is to look does not listen as well.
func TestWaiterThatLooksHasNoConnectionOfItsOwn(t *testing.T) {
	url := database(t)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{Poll: 10 * time.Millisecond})
	held := lock(t, a, "a", locker.WithTTL(long))
	got := waits(t, b, "a")
	queued(t, a, "a", 1)
	admin := connect(t, url)
	if n := query[int](t, admin, listening); n > 0 {
		t.Errorf("%d connections listen", n)
	}
	eventually(t, func() string { // it may look late
		if !query[bool](t, admin, `SELECT patient > clock_timestamp() + interval '500 milliseconds' FROM lockstile_queue`) {
			return "it is taken for dead as soon as it has not looked for some milliseconds"
		}
		return ""
	})
	unlock(t, held)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: the connection for renewals is opened when it is needed, also where the pool keeps
// some open. Method: a hook counts what is opened, and the pool what it has opened itself.
func TestConnectionForRenewalsIsOpenedWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	url := database(t)
	newLocker(t, url, postgres.Options{})
	var dialed atomic.Int64
	pool := poolWith(t, url+"&pool_min_conns=2&pool_max_conns=3", func(c *pgxpool.Config) {
		c.AfterConnect = func(context.Context, *pgx.Conn) error { dialed.Add(1); return nil }
	})
	l := opened(t, "a/leases", pool)
	unlock(t, lock(t, l, "a"))
	eventually(t, func() string {
		if s := pool.Stat(); s.TotalConns() < 2 || s.NewConnsCount() != dialed.Load() {
			return fmt.Sprintf("the pool has opened %d connections of %d, and no lock was renewed", s.NewConnsCount(), dialed.Load())
		}
		return ""
	})
}

// Goal: a connection may forget what was prepared there: the application, or what is in
// between, may have it do so.
func TestStatementThatAConnectionHasForgottenIsSentAgain(t *testing.T) {
	url := database(t)
	pool := connect(t, url+"&pool_max_conns=1")
	l := onPool(t, "a/leases", pool)
	warmUp(t, l, pool)
	for range 2 {
		exec(t, pool, `DEALLOCATE ALL`)
		held, err := l.TryLock(soon(t), "a", locker.WithTTL(long))
		if err != nil {
			t.Fatalf("TryLock: %v", err)
		}
		exec(t, pool, `DEALLOCATE ALL`)
		unlock(t, held)
	}
}
