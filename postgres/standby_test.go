package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// reloads changes a setting of the server's, without a restart. No commit of the pool's
// waits for a standby.
func reloads(t *testing.T, admin *pgxpool.Pool, setting, value string) {
	t.Helper()
	exec(t, admin, `ALTER SYSTEM SET `+setting+` = '`+value+`'`)
	exec(t, admin, `SELECT pg_reload_conf()`)
}

// Goal: a promise about a synchronous standby ends with the setting, and not with the
// process. Method: the setting is taken away while locks are held. From then on nothing is
// granted and no lease is renewed: a standby that takes over might not know of it.
func TestSynchronousStandbyThatIsTakenAwayIsNoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a standby")
	}
	t.Parallel()
	primary := testserver.Postgres(t)
	testserver.PostgresStandby(t, primary, primary.Addr(), nil)
	url := primary.URL("postgres")
	admin := connect(t, url+"&synchronous_commit=local")
	reloads(t, admin, "synchronous_standby_names", "*")
	opts := postgres.Options{SyncStandby: true}
	leases := newLocker(t, url, opts)
	sessions, err := postgres.NewSession(connect(t, url), opts)
	if err != nil {
		t.Fatal(err)
	}
	ready(t, sessions, nil)
	var held *locker.Lock
	eventually(t, func() string { // the setting has arrived everywhere
		for _, l := range []locker.Locker{leases, sessions} {
			next, err := l.TryLock(soon(t), "a", locker.WithTTL(long))
			if err != nil {
				return err.Error()
			}
			held = next
			unlock(t, held)
		}
		return ""
	})
	held = lock(t, leases, "held", locker.WithTTL(long))
	stays := lock(t, sessions, "stays", locker.WithTTL(long))
	reloads(t, admin, "synchronous_standby_names", "")
	tries := 0
	for what, ask := range map[string]func() error{
		"a renewal": func() error { return held.Renew(soon(t)) },
		"a lease":   func() error { tries++; return tried(t, leases, fmt.Sprint("new ", tries)) },
		"a session lock": func() error {
			tries++
			return tried(t, sessions, fmt.Sprint("new ", tries))
		},
	} {
		eventually(t, func() string {
			if err := ask(); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "synchronous_standby_names") {
				return fmt.Sprintf("%s without a synchronous standby: %v", what, err)
			}
			return ""
		})
	}
	unlock(t, stays) // what is held is on a connection that no standby has a part in
}

// Goal: what the standby does not have was not granted and not renewed. Method: the standby
// dies, and contexts end. The pool is told to send cancel requests then, at which a server
// that waits for its standby answers as if the standby had it.
func TestAnswerToAStatementThatTheClientHasCancelledIsNone(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a standby")
	}
	t.Parallel()
	primary := testserver.Postgres(t)
	standby := testserver.PostgresStandby(t, primary, primary.Addr(), nil)
	url := primary.URL("postgres")
	admin := connect(t, url+"&synchronous_commit=local")
	newLocker(t, url, postgres.Options{}) // the schema
	reloads(t, admin, "synchronous_standby_names", "*")
	pool := poolWith(t, url, func(c *pgxpool.Config) {
		c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: patience}
		}
	})
	opts := postgres.Options{SyncStandby: true}
	leases, err := postgres.New(pool, opts)
	ready(t, leases, err)
	sessions, err := postgres.NewSession(pool, opts)
	ready(t, sessions, err)
	var held *locker.Lock
	tries := 0
	eventually(t, func() string { // the setting has arrived everywhere
		tries++
		err := tried(t, sessions, "a session's")
		if errors.Is(err, locker.ErrTaken) {
			err = nil
		}
		if err == nil {
			held, err = leases.TryLock(soon(t), fmt.Sprint("held ", tries), locker.WithTTL(long))
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	standby.Kill()
	for what, ask := range map[string]func(ctx context.Context) error{
		"a renewal":      held.Renew,
		"a lease":        func(ctx context.Context) error { _, err := leases.TryLock(ctx, "new"); return err },
		"a session lock": func(ctx context.Context) error { _, err := sessions.TryLock(ctx, "new, of a session"); return err },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s that the standby does not have: %v", what, err)
		}
		cancel()
	}
	reloads(t, admin, "synchronous_standby_names", "")
	unlock(t, held)
}

// Goal: a standby, which may lag, tells nobody that a lock is taken, but what to do.
func TestStandbySaysThatItIsOne(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a standby")
	}
	t.Parallel()
	primary := testserver.Postgres(t)
	held := lock(t, newLocker(t, primary.URL("postgres"), postgres.Options{}), "a", locker.WithTTL(long))
	standby := testserver.PostgresStandby(t, primary, primary.Addr(), nil)
	l := opened(t, "a/leases", connect(t, standby.URL("postgres")))
	if _, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("TryLock on a standby: %v", err)
	}
	unlock(t, held)
}

// Goal: a keep that only the primary has is none. Method: no standby is there, and the wait
// for it is cancelled, after which others see what was written. The second keep finds that,
// and must wait as well.
func TestKeepThatIsSentAgainWaitsForTheStandbyToo(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t).URL("postgres")
	admin, pool := connect(t, url+"&synchronous_commit=local"), connect(t, url)
	newLocker(t, url, postgres.Options{})
	exec(t, admin, `SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)`)
	reloads(t, admin, "synchronous_standby_names", "nobody")
	eventually(t, func() string {
		if !waitsForStandby(t, admin, pool, `SELECT pg_logical_emit_message(true, 'test', '')`) {
			return "the setting has not arrived"
		}
		return ""
	})
	for _, keep := range []string{"first", "second"} {
		if !waitsForStandby(t, admin, pool, `SELECT lockstile_release_5('a', 'mine', false, 0, 600000)`) {
			t.Errorf("the %s keep does not wait for the standby", keep)
		}
	}
}

// Goal: what somebody was told is on the standby too, whatever the role says. Method: the
// statements themselves, by a role that waits for the server's own disk alone, where the
// standby is not there. Whoever waits for it is seen to wait, and is told to stop.
//
// Interleaving: a holder is granted the lock, the standby takes over without the row, and
// grants it again.
func TestGrantsRenewalsAndMarksWaitForTheStandbyWhateverTheRoleSays(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t, "synchronous_standby_names=nobody").URL("postgres") + "&synchronous_commit=local"
	newLocker(t, url, postgres.Options{})
	admin, pool := connect(t, url), connect(t, url)
	for _, sql := range []string{
		`SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)`,
		`SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)`, // asked for again
		`SELECT lockstile_renew_5(ARRAY['a'], ARRAY['mine'], ARRAY[600000], false)`,
		`SELECT lockstile_release_5('a', 'mine', false, 0, 600000)`,
		`SELECT lockstile_release_5('b', 'late', true, 600000, 0)`,
		`SELECT lockstile_read('c', '#mine', 600000, '')`,
	} {
		if !waitsForStandby(t, admin, pool, sql) {
			t.Errorf("%s does not wait for the standby", sql)
		}
	}
}

// waitsForStandby runs a statement, and reports whether it has waited for a standby, which admin
// tells it to stop.
func waitsForStandby(t *testing.T, admin, pool *pgxpool.Pool, sql string) (waited bool) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := pool.Exec(soon(t), sql)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			return waited
		default:
			waited = query[bool](t, admin, `SELECT coalesce(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`) || waited
		}
	}
}

// Goal: a session lock waits for the standby where that is declared, also one whose token is on the disk already: a server that
// was replaced, and does not know it, grants nothing. Elsewhere it waits for no standby: while that is away, a grant to a waiter that
// is dead would stay.
func TestSessionLockWaitsForTheStandbyWhereThatIsDeclared(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t).URL("postgres")
	l, admin := newSession(t, url), connect(t, url+"&synchronous_commit=local")
	held := lock(t, l, "held", locker.WithTTL(long)) // its token is on the disk, and so are the next
	reloads(t, admin, "synchronous_standby_names", "nobody")
	pool := connect(t, url)
	eventually(t, func() string {
		if !waitsForStandby(t, admin, pool, `SELECT pg_logical_emit_message(true, 'test', '')`) {
			return "the setting has not arrived"
		}
		return ""
	})
	for i, declared := range []bool{false, true, false, true} {
		sql := fmt.Sprintf(`SELECT lockstile_session_acquire_5('new %d', '', 600000, false, 0, false, 0, %v)`, i, declared)
		if waited := waitsForStandby(t, admin, connect(t, url), sql); waited != declared {
			t.Errorf("declared: %v, and it has waited: %v", declared, waited)
		}
	}
	exec(t, admin, `CHECKPOINT`) // the next token has to wait for the disk
	unlock(t, lock(t, l, "another", locker.WithTTL(long)))
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("Renew while the standby is away: %v", err)
	}
	unlock(t, held)
}
