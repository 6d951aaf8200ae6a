package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// Goal: no token of a session lock comes back, also where the server has had a
// checkpoint since its numbers were last known to be on disk.
//
// Interleaving: a session lock's numbers are on disk, up to 32 ahead. After a checkpoint
// the server's recovery begins behind that, so the next draw logs the sequence again. It
// is that of a transaction which is not committed. A session draws a number that was
// known to be on disk before. The server crashes, and begins again before both.
func TestTokenOfASessionLockAfterACheckpointOutlastsACrash(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres")
	l := newSession(t, url)
	unlock(t, lock(t, l, "a"))
	open := begun(t, url)
	exec(t, connect(t, url), `CHECKPOINT`)
	if _, err := postgres.LockTx(soon(t), open, "another"); err != nil {
		t.Fatal(err)
	}
	crashBetween(t, server, l)
}

// Goal: a token of a session lock waits for the disk also where another one is just waiting,
// and notes for both how far the sequence is logged. Method: a transaction has what lets only
// one of them write that note. Then nothing but a message is there to wait for.
//
// Interleaving: a transaction's draw has the server log the sequence 32 numbers ahead, and is
// not committed. Two sessions draw from these at once, and one of them is answered. The
// server crashes, and begins again before all three.
func TestTokenOfASessionLockOutlastsACrashThoughAnotherIsBeingNoted(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres")
	l := newSession(t, url)
	another := begun(t, url)
	if _, err := postgres.LockTx(soon(t), another, "another"); err != nil {
		t.Fatal(err)
	}
	if _, err := another.Exec(soon(t), `SELECT pg_advisory_xact_lock(1819239277, 0)`); err != nil {
		t.Fatal(err)
	}
	crashBetween(t, server, l)
}

// Locks that are free share a connection, where statements go one after another. A sign
// of life goes before those that wait: behind those of a thousand names it would come too
// late for every lock.
func TestSignOfLifeDoesNotWaitBehindManyNames(t *testing.T) {
	t.Parallel()
	url := database(t)
	newSession(t, url) // makes the schema
	var statements atomic.Int64
	pool := poolWith(t, url, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return testserver.SlowConn{Conn: conn, Each: 10 * time.Millisecond, Writes: &statements}, err
		}
	})
	l, err := postgres.NewSession(pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	held := lock(t, l, "held", locker.WithTTL(long))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() { _, _ = l.Lock(ctx, fmt.Sprint("n", i), locker.WithTTL(long)) })
	}
	begun := statements.Load()
	eventually(t, func() string {
		if statements.Load() > begun+20 {
			return ""
		}
		return "the many names do not keep the connection busy"
	})
	before := statements.Load()
	if err := held.Renew(soon(t)); err != nil {
		t.Error(err)
	}
	if ahead := statements.Load() - before; ahead > 250 {
		t.Errorf("%d statements went before a sign of life", ahead)
	}
	cancel()
	all.Wait()
}

// An error comes after the server has granted a connection once more what it has. Then
// the lock must not stay when its holder gives it back.
func TestSessionLockIsFreeAfterAnErrorOfANameWithTheSameHash(t *testing.T) {
	url := database(t)
	a, b, admin := newSession(t, url), newSession(t, url), connect(t, url)
	held := lock(t, a, sameHash[0], locker.WithTTL(long))
	refuseRows(t, admin, "INSERT", sameHash[1])
	if second, err := a.TryLock(soon(t), sameHash[1], locker.WithTTL(long)); err == nil {
		t.Errorf("a name with the same hash was granted: %v", second)
	}
	unlock(t, held)
	next, err := b.TryLock(soon(t), sameHash[0])
	if err != nil {
		t.Fatalf("TryLock of a lock that was given back: %v", err)
	}
	unlock(t, next)
}

// What is cleared away after an error is not what another attempt holds on the same
// connection under the same key. Method: the statement that asks for a lock is missing.
func TestErrorOfANameWithTheSameHashSparesWhoeverHoldsTheKey(t *testing.T) {
	url := database(t)
	a, b, admin := newSession(t, url), newSession(t, url), connect(t, url)
	held := lock(t, a, sameHash[0], locker.WithTTL(long))
	exec(t, admin, `ALTER FUNCTION lockstile_session_acquire_4 RENAME TO missing`)
	if second, err := a.TryLock(soon(t), sameHash[1], locker.WithTTL(long)); err == nil || errors.Is(err, locker.ErrTaken) {
		t.Errorf("without the function: %v, %v", second, err)
	}
	exec(t, admin, `ALTER FUNCTION missing RENAME TO lockstile_session_acquire_4`)
	if second, err := b.TryLock(soon(t), sameHash[0]); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of a held lock: %v, %v", second, err)
	}
	unlock(t, held)
	unlock(t, lock(t, b, sameHash[0]))
}

// Goal: what the dead have left keeps nobody from locking. Method: a transaction by hand
// locks the row of a connection that is gone.
func TestRowOfADeadConnectionThatIsStuckKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	url := database(t)
	newSession(t, url)
	exec(t, connect(t, url), `INSERT INTO lockstile_session (key, name, pid, token, holder, ttl) VALUES (1, 'dead', 0, 1, '', 1000)`)
	tx := begun(t, url)
	ask[string](t, tx, `SELECT name FROM lockstile_session FOR UPDATE`)
	l := newSession(t, url)
	held, err := l.TryLock(soon(t), "a")
	if err != nil {
		t.Fatalf("TryLock of another name: %v", err)
	}
	unlock(t, held)
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// Goal: what an earlier process of the server left keeps nobody from locking, though a
// connection has its number now, and goes alone. Method: a hook writes such rows before the
// connection is ours, of a name with the same advisory key.
func TestRowsOfAnEarlierProcessOfTheSameNumberMeanNothing(t *testing.T) {
	url := database(t)
	b, admin := newSession(t, url), connect(t, url)
	a := opened(t, "/sessions", hooked(t, url, `INSERT INTO lockstile_session (key, name, pid, token, holder, ttl)
		VALUES (hashtextextended('a', 0), 'another', pg_backend_pid(), pg_backend_pid(), '', 1000)`))
	held, err := a.TryLock(soon(t), "a", locker.WithShared(), locker.WithTTL(long))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, `INSERT INTO lockstile_session (key, name, pid, token, holder, ttl) VALUES (hashtextextended('a', 0), 'a', 0, 1, 'dead', 1000)`)
	unlock(t, lock(t, b, "b")) // its connection clears away what the dead have left
	if info, err := b.Inspect(soon(t), "a"); err != nil || len(info.Holders) != 1 || info.Holders[0].Number != locker.Number(held.SharedToken()) {
		t.Errorf("beside a dead reader's row, these are shown to have the lock: %+v, %v", info.Holders, err)
	}
	unlock(t, held)
}

// hooked is a pool with a hook that every connection goes through.
func hooked(t *testing.T, url, sql string) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, url, func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, sql)
			return err
		}
	})
}

// Goal: a hook that gives up rights of the login role keeps nobody from locking: such a
// role may not see when its own connections began.
func TestLocksWorkWithARoleThatAHookHasSet(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		b, admin := open(t, url), connect(t, url)
		role := "role" + url[strings.LastIndexByte(url, '/')+1:strings.IndexByte(url, '?')]
		exec(t, admin, `CREATE ROLE `+role+`_less NOLOGIN`)
		exec(t, admin, `CREATE ROLE `+role+` LOGIN IN ROLE `+role+`_less`)
		exec(t, admin, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role+`_less`)
		exec(t, admin, `GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA public TO `+role+`_less`)
		a := opened(t, t.Name(), hooked(t, strings.Replace(url, "postgres@", role+"@", 1), `SET ROLE `+role+`_less`))
		held, err := a.TryLock(soon(t), "a", locker.WithTTL(long))
		if err != nil {
			t.Fatal(err)
		}
		got := waits(t, a, "b")
		if err := <-got; err != nil {
			t.Error(err)
		}
		if _, err := b.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of a held lock: %v", err)
		}
		unlock(t, held)
	})
}

// Goal: a grant that is not committed is none. Method: a hook of the pool's begins a
// transaction, which ends with the connection, and all that was done in it is undone.
func TestConnectionsInsideATransactionAreRefused(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		b := open(t, url)
		name := fmt.Sprint("begins", databases.Add(1))
		a := opened(t, t.Name(), hooked(t, url+"&application_name="+name, `BEGIN`))
		held, err := a.TryLock(soon(t), "a", locker.WithTTL(long))
		if err == nil {
			other, err := b.TryLock(soon(t), "a", locker.WithTTL(long))
			t.Fatalf("it was granted inside a transaction: %v; to another process then: %v, %v", held.Err(), other != nil, err)
		}
		if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "transaction") {
			t.Errorf("TryLock: %v", err)
		}
		unlock(t, lock(t, b, "a"))
		connections(t, connect(t, url), name, func() int32 { return 0 })
	})
}

// Goal: an attempt whose answer is lost with its connection leaves no lock behind in the
// server, which knows nothing of the loss, and is made again.
func TestSessionLockWhoseAnswerIsLostIsFreedInTheServerAndAskedForAgain(t *testing.T) {
	url := database(t)
	pool, w := wired(t, url)
	a := onPool(t, "/sessions", pool)
	unlock(t, lock(t, a, "warm up", locker.WithTTL(long)))
	w.cut(parted)
	w.repair()
	held, err := a.TryLock(soon(t), "a", locker.WithTTL(long))
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	if err := held.Renew(soon(t)); err != nil {
		t.Error(err)
	}
	unlock(t, held)
}

// Goal: the locks of a connection that is over for its process alone are freed as soon as
// that can open another, and not when the server's patience ends.
func TestLocksOfAConnectionThatIsOverForThisSideAloneAreFreed(t *testing.T) {
	url := database(t)
	pool, w := wired(t, url)
	a, b := onPool(t, "/sessions", pool), newSession(t, url)
	held := lock(t, a, "a", locker.WithTTL(long))
	w.part()
	w.repair()
	select {
	case <-held.Lost():
	case <-time.After(patience):
		t.Fatal("a lock on a connection that is over is still believed in")
	}
	next, err := b.Lock(soon(t), "a")
	if err != nil {
		t.Fatalf("the server still has the lock of the connection that is over: %v", err)
	}
	unlock(t, next)
}

// The server gives the number of a process to another later on, which may wait for a lock
// as well, or hold some.
func TestLaterProcessOfTheSameNumberIsAnother(t *testing.T) {
	url := database(t)
	a, b, admin := newSession(t, url), newSession(t, url), connect(t, url)
	held := lock(t, b, "a", locker.WithTTL(long))
	look, end, err := postgres.Await(a, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	queued(t, b, "a", 1)
	if err := look(0); err != nil {
		t.Errorf("a connection that waits: %v", err)
	}
	if look(-1) == nil {
		t.Error("a connection whose number another one has counts as waiting")
	}
	pid := query[int32](t, admin, `SELECT pid FROM lockstile_session WHERE name = 'a'`)
	began := query[int64](t, admin, `SELECT (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_activity WHERE pid = $1`, pid)
	if !query[bool](t, admin, postgres.SessionGone, pid, began-1, true) {
		t.Error("the process is not gone, though its number is another's")
	}
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("the connection that has the number now: %v", err)
	}
	if query[bool](t, admin, postgres.SessionGone, pid, began, true) {
		t.Error("the process was gone")
	}
	select {
	case <-held.Lost():
	case <-time.After(patience):
		t.Error("the connection was not ended")
	}
}

// Goal: a connection that takes long to be opened is not taken for one that the server has
// ended. Method: a hook of the pool's holds it up.
func TestConnectionThatIsBeingOpenedIsNotGone(t *testing.T) {
	url := database(t)
	newSession(t, url)
	open := make(chan struct{}, 2)
	open <- struct{}{} // the shared one
	l := opened(t, "/sessions", poolWith(t, url, func(c *pgxpool.Config) {
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { <-open; return nil }
	})).(*postgres.SessionLocker)
	endShared, err := postgres.Shared(soon(t), l)
	if err != nil {
		t.Fatal(err)
	}
	look, end, err := postgres.Await(l, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := look(0); err != nil {
		t.Errorf("a connection that is being opened: %v", err)
	}
	open <- struct{}{}
	end()
	endShared()
}

// Goal: nobody believes in a lock on the strength of an answer that was long under way.
// Method: a waiter's connection answers late that it was granted the lock, and nothing
// after that.
func TestGrantThatWasLongUnderWayIsNotBelieved(t *testing.T) {
	t.Parallel()
	url := database(t)
	b, admin := newSession(t, url), connect(t, url)
	pool, w := wired(t, url)
	a := onPool(t, "/sessions", pool)
	held := lock(t, b, "a", locker.WithTTL(long))
	got := make(chan *locker.Lock, 1)
	go func() {
		next, err := a.Lock(soon(t), "a", locker.WithTTL(10*time.Second))
		if err != nil {
			t.Errorf("Lock: %v", err)
		}
		got <- next
	}()
	queued(t, b, "a", 1)
	first := query[int](t, admin, waitingPid)
	w.cutLast(late)
	unlock(t, held)
	eventually(t, func() string {
		if w.kept() == 0 {
			return "the waiter was not granted the lock"
		}
		return ""
	})
	<-time.After(100 * time.Millisecond) // more than may pass between a question and its answer
	if w.answer() == 0 {
		t.Fatal("nothing was held back: the test tests nothing")
	}
	next := <-got
	if next == nil {
		return
	}
	if pid := query[int](t, admin, `SELECT coalesce(min(pid), 0) FROM lockstile_session WHERE name = 'a'`); pid == first {
		t.Errorf("it believes in the lock of connection %d, which has said nothing since", pid)
	}
	unlock(t, next)
}

// elsewhere returns a pool on a server whose connections after the first, with the locks,
// lead to another address. It counts them all.
func elsewhere(t *testing.T, url, addr string) (*pgxpool.Pool, *atomic.Int64) {
	t.Helper()
	dialed := new(atomic.Int64)
	return poolWith(t, url, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, to string) (net.Conn, error) {
			if dialed.Add(1) > 1 {
				to = addr
			}
			return dial(ctx, network, to)
		}
	}), dialed
}

// Goal: tokens are on the disk of the server that drew them. Method: the connection for
// that is made to another server, as after a failover that the connection with the locks
// has not heard of: to one with locks of its own, to one without the schema, and to a
// standby.
func TestTokensAreMadeToLastOnTheServerThatDrewThem(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a standby")
	}
	t.Parallel()
	first, second, empty := testserver.Postgres(t), testserver.Postgres(t), testserver.Postgres(t)
	for _, server := range []*testserver.PostgresServer{first, second} {
		newSession(t, server.URL("postgres"))
	}
	standby := testserver.PostgresStandby(t, first, first.Addr(), nil)
	url := first.URL("postgres")
	admin := connect(t, url)
	for what, other := range map[string]*testserver.PostgresServer{"another": second, "one without the schema": empty, "a standby": standby} {
		exec(t, admin, `DELETE FROM lockstile_known`)
		pool, dialed := elsewhere(t, url, other.Addr())
		l := opened(t, "a/sessions", pool)
		held, err := l.TryLock(soon(t), what)
		if err != nil {
			t.Errorf("%s: TryLock: %v", what, err)
			continue
		}
		unlock(t, held)
		if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_known`); n != 1 {
			t.Errorf("%s: the first was asked %d times to put the token on its disk, want 1", what, n)
		}
		if dialed.Load() < 2 {
			t.Errorf("%s: %d connections: the test tests nothing", what, dialed.Load())
		}
	}
	if n := query[int](t, connect(t, second.URL("postgres")), `SELECT count(*)::int FROM lockstile_known`); n != 0 {
		t.Errorf("another was asked %d times to put a token on its disk", n)
	}
}

// Goal: a server that answers others is not silent. Method: each token has to be put on the
// disk, over a connection that is so slow that the last of many names waits for longer than
// any one answer may take.
func TestManyNamesMayWaitForTheDiskOneAfterAnother(t *testing.T) {
	t.Parallel()
	url := database(t)
	newSession(t, url) // makes the schema
	admin := connect(t, url)
	exec(t, admin, `CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	exec(t, admin, `CREATE TRIGGER forget BEFORE INSERT ON lockstile_known FOR EACH ROW EXECUTE FUNCTION forget()`)
	var dialed, statements atomic.Int64
	l := opened(t, "a/sessions", poolWith(t, url, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err == nil && dialed.Add(1) > 1 {
				conn = testserver.SlowConn{Conn: conn, Each: 100 * time.Millisecond, Writes: &statements}
			}
			return conn, err
		}
	}))
	const names = 120 // of which the last waits for twelve seconds
	all := make(chan *locker.Lock, names)
	for i := range names {
		go func() {
			held, err := l.TryLock(soon(t), fmt.Sprint(i), locker.WithTTL(long))
			if err != nil {
				t.Errorf("TryLock: %v", err)
			}
			all <- held
		}()
	}
	var held []*locker.Lock
	for range names {
		if lock := <-all; lock != nil {
			held = append(held, lock)
		}
	}
	for _, lock := range held { // until now an Unlock would stand behind all who ask
		unlock(t, lock)
	}
	if n := statements.Load(); n < names {
		t.Errorf("%d statements on the slow connection: the test tests nothing", n)
	}
}

// Goal: without a context that ends, no call waits for ever: for a server that is silent, or
// for a connection of a pool of which the application has all.
func TestQuestionsAboutSessionLocksHaveAnEnd(t *testing.T) {
	t.Parallel()
	url := database(t)
	ends := func(what string, f func() error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- f() }()
		select {
		case err := <-done:
			if !errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(patience):
			t.Errorf("%s has not returned", what)
		}
	}
	pool, w := wired(t, url)
	a := onPool(t, "/sessions", pool)
	w.cut(deaf)
	ends("Break at a silent server", func() error { _, err := a.Break(context.Background(), "a"); return err })
	pool = connect(t, url+"&pool_max_conns=1")
	b := opened(t, "a/sessions", pool)
	unlock(t, lock(t, b, "a", locker.WithTTL(long)))
	occupied(t, pool)
	otherVersion(t, url, "1000") // which of the two is older is asked over the pool
	ends("TryLock with an older program", func() error { _, err := b.TryLock(context.Background(), "a"); return err })
}

// Goal: a lock for which nobody waits any more is given back when it is granted, also on a
// connection that others keep. Method: the server takes the lock, and a table that somebody has
// locked keeps it from answering until the attempt has ended.
func TestLockThatIsGrantedAfterItsAttemptHasEndedIsGivenBack(t *testing.T) {
	t.Parallel()
	url := database(t)
	l, admin := newSession(t, url), connect(t, url)
	held := lock(t, l, "another", locker.WithTTL(long))
	tx := begun(t, url)
	if _, err := tx.Exec(soon(t), `LOCK TABLE lockstile_session IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(soon(t))
	ended := make(chan error, 1)
	go func() { ended <- postgres.EndUnanswered(ctx, l, "a") }()
	eventually(t, func() string {
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE relation = 'lockstile_session'::regclass AND NOT granted`) != 1 {
			return "the request has not come"
		}
		return ""
	})
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the attempt ended with %v", err)
	}
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	unlock(t, lock(t, newSession(t, url), "a"))
	unlock(t, held)
}
