package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// Goal: a database whose transactions read an old picture by default gives no lock
// away. Method: the levels above read committed, asked of both kinds.
//
// Interleaving (were it not refused): a second process waits to enter while the
// first is granted, and then decides on the picture from before.
func TestIsolationLevelsThatReadAnOldPictureAreRefused(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		held := lock(t, open(t, url), "a")
		for _, level := range []string{"repeatable read", "serializable"} {
			l := opened(t, t.Name(), connect(t, url+"&default_transaction_isolation="+strings.ReplaceAll(level, " ", "%20")))
			for _, name := range []string{"a", "b"} {
				_, err := l.TryLock(soon(t), name)
				if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "default_transaction_isolation") {
					t.Errorf("%s: TryLock of %q: %v", level, name, err)
				}
			}
		}
		if err := held.Renew(soon(t)); err != nil {
			t.Error(err)
		}
	})
}

// Goal: what was opened for a Locker ends with it: no connection but the pool's, no
// row and no lock stays. Method: holders, waiters that are granted and that give up,
// and a look at the server.
func TestClosedLockersLeaveNothingInTheServer(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		admin := connect(t, url+"&application_name=admin")
		a, b, c := open(t, url), open(t, url), open(t, url)
		for range 3 {
			held := lock(t, a, "a", locker.WithTTL(long))
			ctx, cancel := context.WithCancel(soon(t))
			got := make(chan error, 2)
			wait := func(ctx context.Context, l locker.Locker) {
				second, err := l.Lock(ctx, "a", locker.WithTTL(long))
				if err == nil {
					err = second.Unlock(context.Background())
				}
				got <- err
			}
			go wait(soon(t), b)
			queued(t, a, "a", 1)
			go wait(ctx, c)
			queued(t, a, "a", 2)
			cancel()
			if err := <-got; !errors.Is(err, context.Canceled) {
				t.Errorf("a waiter that gave up: %v", err)
			}
			unlock(t, held)
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
		for _, l := range []lockerUnderTest{a, b, c} {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		eventually(t, func() string {
			rows := query[int](t, admin, `SELECT ((SELECT count(*) FROM lockstile_lease) + (SELECT count(*) FROM lockstile_queue))::int`)
			locks := query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory'
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
			if rows+locks > 0 {
				return "rows or advisory locks stay"
			}
			return ""
		})
	})
}

// Goal: a role whose idle connections the server ends gets a lease and gives it back all
// the same. Method: the pool hands out connections that have ended, as it does where it is
// told not to ask them first.
func TestConnectionsThatTheServerHasEndedForIdlenessAreReplaced(t *testing.T) {
	t.Parallel()
	url := database(t)
	newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	l := process(t, "/leases", url+"&application_name=idle&idle_session_timeout=500")
	ended := func() {
		t.Helper()
		eventually(t, func() string {
			if query[int](t, admin, `SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'idle' AND datname = current_database()`) > 0 {
				return "the server has not ended the connections that are idle"
			}
			return ""
		})
	}
	for range 3 {
		ended()
		held, err := l.TryLock(soon(t), "a", locker.WithTTL(long))
		if err != nil {
			t.Fatalf("TryLock: %v", err)
		}
		ended()
		unlock(t, held)
	}
}

// Goal: a server that was restarted keeps nobody from locking, however many connections to
// it the pool had. Method: more than are tried for any other reason, all of which the
// server has ended, and a pool that asks for no sign of life.
func TestAllConnectionsOfThePoolMayHaveEnded(t *testing.T) {
	url := database(t)
	newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	pool := poolWith(t, url+"&application_name=idle&pool_max_conns=12", func(c *pgxpool.Config) {
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	var conns []*pgxpool.Conn
	for range 12 {
		conn, err := pool.Acquire(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
	const mine = `FROM pg_stat_activity WHERE application_name = 'idle' AND datname = current_database()`
	exec(t, admin, `SELECT pg_terminate_backend(pid, 60000) `+mine)
	if n := query[int](t, admin, `SELECT count(*)::int `+mine); n > 0 {
		t.Fatalf("%d connections live on", n)
	}
	held, err := opened(t, "a/leases", pool).TryLock(soon(t), "a", locker.WithTTL(long))
	if err != nil {
		t.Fatalf("TryLock after a restart: %v", err)
	}
	unlock(t, held)
}

// Goal: the pool's settings and hooks are those of all connections. Method: a hook that
// sets the search path of each connection the pool hands out, and the older form of it.
func TestConnectionsGoThroughTheHookThatThePoolHandsThemOutWith(t *testing.T) {
	forEachKind(t, func(t *testing.T, _ func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		exec(t, connect(t, url), `CREATE SCHEMA locks`)
		a := onPool(t, t.Name(), poolWith(t, url, func(c *pgxpool.Config) {
			c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
				_, err := conn.Exec(ctx, `SET search_path = locks`)
				return err == nil, err
			}
		}))
		b := onPool(t, t.Name(), poolWith(t, url, func(c *pgxpool.Config) {
			c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { //nolint:staticcheck // the older form
				_, err := conn.Exec(ctx, `SET search_path = locks`)
				return err == nil
			}
		}))
		handOver(t, a, b)
		says := "not today"
		finds := func(ctx context.Context, conn *pgx.Conn) { _, _ = conn.Exec(ctx, `SET search_path = locks`) }
		for what, set := range map[string]func(c *pgxpool.Config){
			"says why": func(c *pgxpool.Config) {
				c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, errors.New(says) }
			},
			"refuses": func(c *pgxpool.Config) {
				c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) { finds(ctx, conn); return false, nil }
			},
			"refuses in the older form": func(c *pgxpool.Config) {
				c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { finds(ctx, conn); return false } //nolint:staticcheck // the same
			},
		} {
			_, err := opened(t, t.Name(), poolWith(t, url, set)).TryLock(soon(t), "a")
			if !errors.Is(err, locker.ErrUnavailable) || what == "says why" && !strings.Contains(err.Error(), says) {
				t.Errorf("TryLock with a hook that %s: %v", what, err)
			}
		}
	})
}

// Goal: statements are sent in every way that the pool can be set to.
func TestLocksWorkInEveryModeOfSendingStatements(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
			t.Run(mode, func(t *testing.T) {
				url := database(t) + "&default_query_exec_mode=" + mode
				another := func() lockerUnderTest { return onPool(t, path.Dir(t.Name()), connect(t, url)) }
				a, b := another(), another()
				for range 4 { // from the third on, a connection may have its statements prepared
					handOver(t, a, b)
				}
				tx := begun(t, url)
				if token, err := postgres.LockTx(soon(t), tx, "it's a"); err != nil || token == 0 {
					t.Errorf("LockTx: %d, %v", token, err)
				}
			})
		}
	})
}

// Goal: a role whose limits are for short transactions of an application can lock.
func TestLocksWorkWithARoleThatHasLimits(t *testing.T) {
	t.Parallel()
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		admin := connect(t, url)
		exec(t, admin, `CREATE SCHEMA locks`)
		open(t, url+"&search_path=locks")
		role := roleWith(t, url, "")
		exec(t, admin, `GRANT USAGE ON SCHEMA locks TO `+role)
		exec(t, admin, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA locks TO `+role)
		exec(t, admin, `GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA locks TO `+role)
		for _, limit := range []string{"search_path = locks", "statement_timeout = '5s'", "lock_timeout = '5s'", "idle_in_transaction_session_timeout = '1s'",
			"idle_session_timeout = '1s'", "synchronous_commit = off", "bytea_output = escape", "datestyle = 'SQL, DMY'", "intervalstyle = sql_standard",
			"timezone = 'Asia/Kolkata'", "extra_float_digits = -15", "plan_cache_mode = force_generic_plan", "row_security = off"} {
			exec(t, admin, `ALTER ROLE `+role+` SET `+limit)
		}
		as := strings.Replace(url, "postgres@", role+"@", 1)
		a, b := opened(t, t.Name(), connect(t, as)), opened(t, t.Name(), connect(t, as))
		handOver(t, a, b)
		held := lock(t, a, "a", locker.WithTTL(long))
		c := opened(t, t.Name(), connect(t, as+"&default_transaction_read_only=on")) // and none of the others', which may connect again
		for _, name := range []string{"a", "b"} {
			if _, err := c.TryLock(soon(t), name); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
				t.Errorf("TryLock of %q in a session that is read-only: %v", name, err)
			}
		}
		unlock(t, held)
	})
}

// Goal: what the application writes over the same connection waits for the disk as it has set
// it: not less, which a crash would undo, and not more.
func TestLocksLeaveTheSessionsSettingsAlone(t *testing.T) {
	for _, commit := range []string{"on", "off"} {
		url := database(t)
		newLocker(t, url, postgres.Options{})
		pool := connect(t, url+"&pool_max_conns=1&synchronous_commit="+commit)
		a, b := opened(t, "a/leases", pool), opened(t, "b/leases", pool)
		same := func(after string) {
			t.Helper()
			if now := query[string](t, pool, `SHOW synchronous_commit`); now != commit {
				t.Errorf("after %s synchronous_commit is %s, and was %s", after, now, commit)
			}
		}
		for _, opts := range [][]locker.Option{nil, {locker.WithShared()}} {
			held := lock(t, a, "a", opts...)
			same("a grant")
			if _, err := b.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("TryLock of a held lock: %v", err)
			}
			same("a lock that is taken")
			unlock(t, held)
			same("a release")
		}
		lockTx(t, pool, "a")
		same("a lock in a transaction")
	}
}

// Goal: a connection whose isolation level changes under it gives no lock away beside a lease.
//
// Interleaving (were it not refused): a Locker has a connection, and the server's configuration changes. A lease is being
// granted when a session asks for the same name: the picture of its statement is from before, and it waits for the key.
// The lease is granted, the session has the key, and sees no lease.
func TestIsolationLevelThatChangesUnderAConnectionIsRefused(t *testing.T) {
	t.Parallel()
	const committed = "&default_transaction_isolation=read%20committed"
	server := testserver.Postgres(t)
	url := server.URL("postgres")
	admin := connect(t, url+committed)
	s := newSession(t, url)
	unlock(t, lock(t, s, "a")) // its connection is kept
	exec(t, admin, `ALTER SYSTEM SET default_transaction_isolation = 'repeatable read'`)
	exec(t, admin, `SELECT pg_reload_conf()`)
	eventually(t, func() string {
		if level, err := postgres.Level(soon(t), s); err != nil || level != "repeatable read" {
			return fmt.Sprintf("the connection has the level %q, %v", level, err)
		}
		return ""
	})
	grant := begun(t, url+committed)
	ask[int64](t, grant, `SELECT (lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false))._token`)
	got := make(chan error, 1)
	go func() { got <- given(s.Lock(soon(t), "a")) }()
	select {
	case err := <-got:
		got <- err
	case <-time.After(time.Second): // it waits for the key
	}
	if err := grant.Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "default_transaction_isolation") {
		t.Errorf("Lock beside a lease: %v", err)
	}
}
