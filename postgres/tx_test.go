package postgres_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

func TestLockTxHoldsUntilTheTransactionEnds(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	pool := connect(t, url)
	var last fencing.Token
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(context.Background()) },
		func(tx pgx.Tx) error { return tx.Rollback(context.Background()) },
	} {
		tx, err := pool.Begin(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		token, err := postgres.LockTx(soon(t), tx, "it's a")
		if err != nil {
			t.Fatal(err)
		}
		if token <= last {
			t.Errorf("token %d follows %d", token, last)
		}
		if _, err := l.TryLock(context.Background(), "it's a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of a name that a transaction holds: %v", err)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		held := lock(t, l, "it's a")
		last = held.Token()
		if last <= token {
			t.Errorf("token %d follows %d", last, token)
		}
		unlock(t, held)
	}
}

// Goal: the token is drawn after the wait, not before it.
func TestLockTxDrawsItsTokenAfterTheWait(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	pool := connect(t, url)
	held := lock(t, l, "a")
	got := make(chan fencing.Token, 1)
	go func() {
		tx, err := pool.Begin(soon(t))
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		token, err := postgres.LockTx(soon(t), tx, "a")
		if err != nil {
			t.Error(err)
		}
		got <- token
	}()
	eventually(t, func() string {
		if query[int](t, pool, `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 0 {
			return "the transaction does not wait"
		}
		return ""
	})
	between := lock(t, l, "b") // draws a token meanwhile
	unlock(t, held)
	if token := <-got; token <= between.Token() {
		t.Errorf("token %d was drawn before the lock was granted (%d was drawn during the wait)", token, between.Token())
	}
}

func TestLockTxWithLockTimeoutIsTaken(t *testing.T) {
	url := database(t)
	held := lock(t, newSession(t, url), "a")
	defer unlock(t, held)
	tx, err := connect(t, url).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(context.Background(), `SET LOCAL lock_timeout = '20ms'`); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.LockTx(soon(t), tx, "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("LockTx after lock_timeout: %v", err)
	}
	if _, err := postgres.LockTx(soon(t), nil, "a"); err == nil {
		t.Error("LockTx accepts no transaction")
	}
	if _, err := postgres.LockTx(soon(t), tx, ""); err == nil {
		t.Error("LockTx accepts no name")
	}
}

// Goal: what ends the wait of LockTx is the caller's to know, and that the lock is taken is
// known all the same. Method: each of what can end it.
func TestLockTxSaysThatTheLockIsTakenWhateverEndsItsWait(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	held := lock(t, newSession(t, url), "a", locker.WithTTL(long))
	var reply *pgconn.PgError
	for name, c := range map[string]struct {
		set  string
		end  func(cancel func())
		kept func(err error) bool
	}{
		"lock_timeout":        {"lock_timeout = '1s'", nil, func(err error) bool { return errors.As(err, &reply) }},
		"statement_timeout":   {"statement_timeout = '1s'", nil, func(err error) bool { return errors.As(err, &reply) }},
		"transaction_timeout": {"transaction_timeout = '1s'", nil, func(err error) bool { return errors.As(err, &reply) }},
		"an administrator": {"lock_timeout = 0", func(func()) {
			exec(t, admin, `SELECT pg_cancel_backend($1)`, query[int](t, admin, waitingPid))
		}, func(err error) bool { return errors.As(err, &reply) }},
		"the context": {"lock_timeout = 0", func(cancel func()) { cancel() }, func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		limit, _, _ := strings.Cut(c.set, " ")
		if !query[bool](t, admin, `SELECT current_setting($1, true) IS NOT NULL`, limit) {
			continue // transaction_timeout came with PostgreSQL 17
		}
		ctx, cancel := context.WithCancel(soon(t))
		tx := begun(t, url)
		if _, err := tx.Exec(ctx, `SET LOCAL `+c.set); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := postgres.LockTx(ctx, tx, "a")
			got <- err
		}()
		if c.end != nil {
			eventually(t, func() string {
				if query[int](t, admin, waitingPid) == 0 {
					return "the transaction does not wait"
				}
				return ""
			})
			c.end(cancel)
		}
		if err := <-got; !errors.Is(err, locker.ErrTaken) || errors.Is(err, locker.ErrUnavailable) || !c.kept(err) {
			t.Errorf("ended by %s: %v", name, err)
		}
		cancel()
	}
	unlock(t, held)
}

// Goal: a server that says nothing has not said that the lock is taken, and a context that
// has ended sends nothing.
func TestLockTxThatHearsNothingDoesNotSayThatTheLockIsTaken(t *testing.T) {
	url := database(t)
	newSession(t, url)
	pool, w := wired(t, url)
	tx, err := pool.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	ended, end := context.WithCancel(soon(t))
	end()
	_, err = postgres.LockTx(ended, tx, "a")
	if !errors.Is(err, context.Canceled) || errors.Is(err, locker.ErrTaken) || errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("in a context that has ended: %v", err)
	}
	if _, err := tx.Exec(soon(t), `SELECT 1`); err != nil {
		t.Errorf("the transaction after that: %v", err)
	}
	w.cut(deaf)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = postgres.LockTx(ctx, tx, "a")
	if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a silent server: %v", err)
	}
}

// Goal: TryLock, Inspect and Break agree on a lock that no connection has. Method: the
// transaction that took it is prepared, and has left its connection.
func TestLockTxOfAPreparedTransactionIsHeld(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t, "max_prepared_transactions=5").URL("postgres")
	l := newSession(t, url)
	tx := begun(t, url)
	if _, err := postgres.LockTx(soon(t), tx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(soon(t), `PREPARE TRANSACTION 'p'`); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock: %v", err)
	}
	if info, err := l.Inspect(soon(t), "a"); err != nil || !info.Held || info.Token != 0 {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if broken, err := l.Break(soon(t), "a"); broken || err == nil || !strings.Contains(err.Error(), "pg_prepared_xacts") {
		t.Errorf("Break: %v, %v", broken, err)
	}
	if infos, err := l.List(soon(t), ""); err != nil || len(infos) != 0 {
		t.Errorf("List, which does not show what others hold: %+v, %v", infos, err)
	}
	exec(t, connect(t, url), `ROLLBACK PREPARED 'p'`)
	unlock(t, lock(t, l, "a"))
}

// Goal: TryLock, Inspect and Break agree on a key that others share.
func TestSharedAdvisoryLocksTakenByHandAreSeenAndBroken(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	for range 2 {
		ask[string](t, begun(t, url), `SELECT pg_advisory_lock_shared(hashtextextended('a', 0))::text`)
	}
	if _, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock: %v", err)
	}
	if info, err := l.Inspect(soon(t), "a"); err != nil || !info.Held {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if broken, err := l.Break(soon(t), "a"); err != nil || !broken {
		t.Errorf("Break: %v, %v", broken, err)
	}
	unlock(t, lock(t, l, "a"))
}

// Goal: no transaction makes LockTx panic. Those of a pool have given their
// connection back when they are over.
func TestLockTxOfAFinishedTransactionIsAnError(t *testing.T) {
	url := database(t)
	newSession(t, url)
	pool := connect(t, url)
	for name, begin := range map[string]func() (pgx.Tx, error){
		"pool": func() (pgx.Tx, error) { return pool.Begin(soon(t)) },
		"connection": func() (pgx.Tx, error) {
			conn, err := pool.Acquire(soon(t))
			if err != nil {
				return nil, err
			}
			t.Cleanup(conn.Release)
			return conn.Conn().Begin(soon(t))
		},
	} {
		tx, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(soon(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.LockTx(soon(t), tx, "a"); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: LockTx after the commit: %v", name, err)
		}
	}
}

// Goal: a lock that was taken inside a savepoint ends when that is rolled back,
// together with what was written under it, and not with its release.
func TestLockTxEndsWithTheSavepointThatItWasTakenIn(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	tx, err := connect(t, url).Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for name, end := range map[string]func(pgx.Tx) error{
		"kept":        func(inner pgx.Tx) error { return inner.Commit(soon(t)) },
		"rolled back": func(inner pgx.Tx) error { return inner.Rollback(soon(t)) },
	} {
		inner, err := tx.Begin(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.LockTx(soon(t), inner, name); err != nil {
			t.Fatal(err)
		}
		if err := end(inner); err != nil {
			t.Fatal(err)
		}
		_, err = l.TryLock(soon(t), name)
		if taken := errors.Is(err, locker.ErrTaken); taken != (name == "kept") {
			t.Errorf("%s: TryLock after the savepoint: %v", name, err)
		}
	}
}

// Goal: a transaction at a higher isolation level gets the lock too, and its commit
// waits for the disk.
func TestLockTxAtAHigherIsolationLevelWaitsForTheDisk(t *testing.T) {
	url := database(t)
	newSession(t, url)
	tx, err := connect(t, url+"&synchronous_commit=off").BeginTx(soon(t), pgx.TxOptions{IsoLevel: pgx.Serializable})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := postgres.LockTx(soon(t), tx, "a"); err != nil {
		t.Fatal(err)
	}
	if set := ask[string](t, tx, `SELECT current_setting('synchronous_commit')`); set != "on" {
		t.Errorf("synchronous_commit is %s", set)
	}
	if err := tx.Commit(soon(t)); err != nil {
		t.Error(err)
	}
}

// Goal: a reader's transaction that is READ ONLY, as readers' often are, is told what to change. It is
// not told to connect to another server.
func TestLockInAReadOnlyTransactionSaysThatItWrites(t *testing.T) {
	url := database(t)
	newLocker(t, url, postgres.Options{})
	for url, opts := range map[string]pgx.TxOptions{url: {AccessMode: pgx.ReadOnly}, url + "&default_transaction_read_only=on": {}} {
		tx, err := connect(t, url).BeginTx(soon(t), opts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = postgres.LockTxShared(soon(t), tx, "a")
		if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "READ WRITE") || strings.Contains(err.Error(), "primary") {
			t.Errorf("LockTxShared: %v", err)
		}
		if err := tx.Rollback(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// Goal: a process that dies while it waits in a transaction keeps nobody out for long. Method: the connection ends, and no
// request follows that would cancel the statement.
//
// Interleaving: a lease is read, and a transaction wants to write. It has the key, and looks until the lease has ended. Its
// process is killed. The server has nothing to send, and does not look whether anybody is there.
func TestTransactionThatDiesWaitingKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	url := database(t)
	admin, l := connect(t, url), newLocker(t, url, postgres.Options{})
	lock(t, l, "a", locker.WithShared(), locker.WithTTL(long))
	lives := lock(t, newSession(t, url), "b", locker.WithTTL(long)) // who waits for the key alone is not forgotten either
	for _, name := range []string{"a", "b"} {
		var conn net.Conn
		pool := poolWith(t, url, func(c *pgxpool.Config) {
			c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
				if conn != nil {
					return nil, errors.New("the process was killed")
				}
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return conn, err
			}
		})
		tx, err := pool.Begin(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		pid := tx.Conn().PgConn().PID()
		got := make(chan error, 1)
		go func() {
			_, err := postgres.LockTx(soon(t), tx, name)
			_ = tx.Rollback(context.Background())
			got <- err
		}()
		eventually(t, func() string {
			if !query[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event IN ('advisory', 'PgSleep'))`, pid) {
				return "the transaction does not wait"
			}
			return ""
		})
		_ = conn.Close()
		<-got
		eventually(t, func() string {
			if query[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid) {
				return name + ": a transaction waits whose process has died"
			}
			return ""
		})
	}
	unlock(t, lock(t, newLocker(t, url, postgres.Options{}), "a", locker.WithShared()))
	unlock(t, lives)
}
