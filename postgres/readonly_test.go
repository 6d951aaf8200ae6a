package postgres_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// ledElsewhere returns a pool whose name leads to the server, or to another while that is told
// to: both have the schema, and the other one takes no writes. The function waits until the pool
// has n connections to the other server, if n is not 0, and else leads back.
func ledElsewhere(t *testing.T, server, other *testserver.PostgresServer) (pool *pgxpool.Pool, lead func(n int)) {
	t.Helper()
	var away atomic.Bool
	pool = poolWith(t, server.URL("postgres")+"&pool_max_conns=5&application_name=led", func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, to string) (net.Conn, error) {
			if away.Load() {
				to = other.Addr()
			}
			return dial(ctx, network, to)
		}
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	})
	admin := connect(t, server.URL("postgres"))
	return pool, func(n int) {
		t.Helper()
		away.Store(n > 0)
		if n == 0 {
			return
		}
		exec(t, admin, `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'led'`)
		var conns []*pgxpool.Conn
		for len(conns) < n {
			conn, err := pool.Acquire(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			if conn.Conn().PgConn().Conn().RemoteAddr().String() != other.Addr() { // it was on its way when the name changed
				_ = conn.Conn().Close(soon(t))
				conn.Release()
				continue
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			conn.Release()
		}
	}
}

// Goal: a name that led to a standby for a second costs no lock. Method: all connections of the
// pool lead to a server that takes no writes, and the name leads back to the other one.
//
// Interleaving (if such connections stay in the pool): each request goes to the standby, which
// refuses it, for as long as the pool keeps the connection. Leases are lost beside a primary
// that is well.
func TestConnectionsToAServerThatTakesNoWritesAreReplaced(t *testing.T) {
	t.Parallel()
	server, other := testserver.Postgres(t), testserver.Postgres(t)
	newLocker(t, server.URL("postgres"), postgres.Options{})
	newLocker(t, other.URL("postgres"), postgres.Options{})
	exec(t, connect(t, other.URL("postgres")), `ALTER SYSTEM SET default_transaction_read_only = on`)
	exec(t, connect(t, other.URL("postgres")), `SELECT pg_reload_conf()`)
	forEachKind(t, func(t *testing.T, _ func(testing.TB, string) lockerUnderTest) {
		pool, lead := ledElsewhere(t, server, other)
		l := opened(t, t.Name(), pool)
		lead(5)
		lead(0)
		held, err := l.TryLock(soon(t), "a", locker.WithTTL(long))
		if err != nil {
			t.Fatalf("TryLock after the name leads to the primary again: %v", err)
		}
		if _, sessions := l.(*postgres.SessionLocker); sessions {
			unlock(t, held)
			return // it ends with the connection
		}
		lead(5)
		if err := held.Renew(soon(t)); err == nil {
			t.Error("it is renewed by a server that takes no writes")
		}
		lead(0)
		if err := held.Renew(soon(t)); err != nil {
			t.Errorf("Renew after the name leads to the primary again: %v", err)
		}
		lead(5)
		lead(0)
		unlock(t, held)
	})
}

// Goal: the same where only a synchronous standby is ever promoted, and with a real standby, which has no
// setting of its own for its standbys and no tables that are not logged: what it answers is no refusal.
func TestConnectionsToAStandbyAreReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a standby")
	}
	t.Parallel()
	server := testserver.Postgres(t)
	standby := testserver.PostgresStandby(t, server, server.Addr(), nil)
	newLocker(t, server.URL("postgres"), postgres.Options{})
	admin := connect(t, server.URL("postgres"))
	pool, lead := ledElsewhere(t, server, standby)
	for _, synced := range []bool{false, true} {
		if synced {
			reloads(t, admin, "synchronous_standby_names", "*")
		}
		l, err := postgres.New(pool, postgres.Options{SyncStandby: synced})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		for what, try := range map[string]func() error{
			"TryLock": func() error {
				held, err := l.TryLock(soon(t), "a", locker.WithTTL(long))
				if err == nil {
					err = held.Unlock(soon(t))
				}
				return err
			},
			"Inspect": func() error { _, err := l.Inspect(soon(t), "a"); return err },
			"List":    func() error { _, err := l.List(soon(t), "a"); return err },
			"Break":   func() error { _, err := l.Break(soon(t), "a"); return err },
		} {
			eventually(t, func() string { // the setting has arrived everywhere
				if err := try(); err != nil {
					return err.Error()
				}
				return ""
			})
			eventually(t, func() string { // the standby has the schema
				if query[bool](t, connect(t, standby.URL("postgres")), `SELECT to_regclass('lockstile_drawn') IS NULL`) {
					return "the standby lags"
				}
				return ""
			})
			lead(5)
			lead(0)
			if err := try(); err != nil {
				t.Errorf("synced: %v, %s after the name leads to the primary again: %v", synced, what, err)
			}
		}
	}
}

// Goal: a waiter keeps waiting while its name leads to a standby, which passes by itself.
func TestWaiterWaitsOnWhileTheServerTakesNoWrites(t *testing.T) {
	t.Parallel()
	server, other := testserver.Postgres(t), testserver.Postgres(t)
	holder := newLocker(t, server.URL("postgres"), postgres.Options{})
	newLocker(t, other.URL("postgres"), postgres.Options{})
	exec(t, connect(t, other.URL("postgres")), `ALTER SYSTEM SET default_transaction_read_only = on`)
	exec(t, connect(t, other.URL("postgres")), `SELECT pg_reload_conf()`)
	pool, lead := ledElsewhere(t, server, other)
	l, err := postgres.New(pool, postgres.Options{Poll: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	held := lock(t, holder, "a", locker.WithTTL(long))
	got := waits(t, l, "a")
	queued(t, holder, "a", 1)
	lead(5)
	before := pool.Stat().NewConnsCount()
	eventually(t, func() string {
		if len(got) > 0 {
			t.Fatalf("Lock while its name leads to a standby: %v", <-got)
		}
		if pool.Stat().NewConnsCount() < before+3 {
			return "it has not asked the server that takes no writes"
		}
		return ""
	})
	lead(0)
	unlock(t, held)
	if err := <-got; err != nil {
		t.Errorf("Lock whose name led to a standby for a while: %v", err)
	}
}
