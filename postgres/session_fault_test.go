package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	onANewPage(t, url)
	if _, err := postgres.LockTx(soon(t), another, "another"); err != nil {
		t.Fatal(err)
	}
	if _, err := another.Exec(soon(t), `SELECT pg_advisory_xact_lock(1819239277, 0)`); err != nil {
		t.Fatal(err)
	}
	crashBetween(t, server, l)
}

// Goal: what the dead have left keeps nobody from locking. Method: a transaction by hand
// locks the row of a connection that is gone.
func TestRowOfADeadConnectionThatIsStuckKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	url := database(t)
	newSession(t, url)
	exec(t, connect(t, url), `INSERT INTO lockstile_session (name, pid, token, holder, ttl) VALUES ('dead', 0, 1, '', 1000)`)
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
// connection has its number now. Method: a hook writes such rows before the
// connection is ours.
func TestRowsOfAnEarlierProcessOfTheSameNumberMeanNothing(t *testing.T) {
	url := database(t)
	b, admin := newSession(t, url), connect(t, url)
	a := opened(t, "/sessions", hooked(t, url, `INSERT INTO lockstile_session (name, pid, token, holder, ttl)
		VALUES ('another', pg_backend_pid(), pg_backend_pid(), '', 1000)`))
	held, err := a.TryLock(soon(t), "a", locker.WithShared(), locker.WithTTL(long))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, `INSERT INTO lockstile_session (name, pid, token, holder, ttl) VALUES ('a', 0, 1, 'dead', 1000)`)
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
	<-time.After(600 * time.Millisecond) // more than may pass between a question and its answer: a twentieth of the TTL
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

// Goal: a hook may change the session's user, too. Method: to one who is not told when the process that serves it began.
func TestSessionLocksWhereAHookChangesTheSessionsUser(t *testing.T) {
	t.Parallel()
	url := database(t)
	b, admin, role := newSession(t, url), connect(t, url), fmt.Sprint("role", databases.Add(1))
	exec(t, admin, `CREATE ROLE `+role+` LOGIN`)
	exec(t, admin, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	exec(t, admin, `GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA public TO `+role)
	a := opened(t, "/sessions", poolWith(t, url, func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SET SESSION AUTHORIZATION `+role)
			return err
		}
	}))
	unlock(t, lock(t, a, "a"))
	unlock(t, lock(t, b, "a"))
}

// Goal: a hook that sets a role which may not end the login's connections does not keep the lock of a dead one.
func TestLockOfADeadConnectionIsFreedWhateverRoleAHookHasSet(t *testing.T) {
	url := database(t)
	b, admin := newSession(t, url), connect(t, url)
	role := fmt.Sprint("role", databases.Add(1))
	exec(t, admin, `CREATE ROLE `+role+`_less NOLOGIN`)
	exec(t, admin, `CREATE ROLE `+role+` LOGIN NOINHERIT IN ROLE `+role+`_less`)
	exec(t, admin, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role+`_less`)
	exec(t, admin, `GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA public TO `+role+`_less`)
	exec(t, admin, `REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO `+role+`_less`) // the login alone can do nothing here
	var w wire
	pool := poolWith(t, strings.Replace(url, "postgres@", role+"@", 1), func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SET ROLE `+role+`_less`)
			return err
		}
		c.ConnConfig.DialFunc = w.dial
	})
	t.Cleanup(w.close)
	a := opened(t, "/sessions", pool)
	held := lock(t, a, "a", locker.WithTTL(time.Hour)) // the server would end the connection by itself after that
	w.part()
	w.repair()
	select {
	case <-held.Lost():
	case <-time.After(patience):
		t.Fatal("a lock on a connection that is over is still believed in")
	}
	unlock(t, lock(t, b, "a"))
	if now := query[string](t, pool, `SELECT current_user::text`); now != role+"_less" {
		t.Errorf("a connection of the pool has the role %s", now)
	}
}

// The server gives the number of a process to another later on, which may have locks of its own.
func TestLaterProcessOfTheSameNumberIsSpared(t *testing.T) {
	url := database(t)
	l, admin := newSession(t, url), connect(t, url)
	held := lock(t, l, "a", locker.WithTTL(long))
	pid := query[int](t, admin, `SELECT pid FROM lockstile_session WHERE name = 'a'`)
	exec(t, admin, postgres.SessionGone, pid, "1.0")
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("the connection that has the number now: %v", err)
	}
	unlock(t, held)
}

// Goal: a lock for which nobody waits any more is given back when it is granted. Method: the server takes the lock, and a
// table that somebody has locked keeps it from answering until the attempt has ended.
func TestLockThatIsGrantedAfterItsAttemptHasEndedIsGivenBack(t *testing.T) {
	t.Parallel()
	url := database(t)
	l, admin := newSession(t, url), connect(t, url)
	tx := begun(t, url)
	if _, err := tx.Exec(soon(t), `LOCK TABLE lockstile_session IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(soon(t))
	ended := make(chan error, 1)
	go func() { _, err := l.TryLock(ctx, "a", locker.WithTTL(long)); ended <- err }()
	eventually(t, func() string {
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE relation = 'lockstile_session'::regclass AND NOT granted`) != 1 {
			return "the request has not come"
		}
		return ""
	})
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("the attempt ended with %v", err)
	}
	if !query[bool](t, admin, `SELECT pg_try_advisory_lock(hashtextextended('a', 0))`) {
		t.Error("the lock stays taken")
	}
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// Goal: a grant on a connection that has ended is none.
//
// Interleaving: the caller's context ends, and the connection with it. The server frees the lock. Then the grant is read,
// which was on its way: the holder would believe until its next renewal.
func TestGrantThatMeetsTheEndOfItsConnectionIsNone(t *testing.T) {
	if told, err := postgres.AskAtTheEnd(soon(t), newSession(t, database(t))); !told || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, and the holder was told: %v", err, told)
	}
}

// Goal: a session that waits for a renewal does so for as long as it has to.
//
// Interleaving: a lease ends while its renewal is under way. A writer has waited for its turn for most of its stretch, and
// gets it and the key. The limit of that wait is over before the renewal is on disk.
func TestEndOfTheWaitForTheKeyEndsNoOtherWait(t *testing.T) {
	t.Parallel()
	url := database(t)
	newLocker(t, url, postgres.Options{})
	admin, key, turn := connect(t, url), begun(t, url), begun(t, url)
	renewal := renewing(t, url, admin, "1 second", 1)
	ask[bool](t, key, `SELECT pg_advisory_xact_lock(hashtextextended('a', 0)) IS NOT NULL`)
	ask[bool](t, turn, `SELECT pg_advisory_xact_lock(hashtextextended('a', 1)) IS NOT NULL`)
	got := make(chan error, 1)
	go func() {
		_, err := connect(t, url).Exec(soon(t), `SELECT lockstile_session_acquire_5('a', '', 600000, false, 2000, true, 0, false)`)
		got <- err
	}()
	eventually(t, func() string {
		if !query[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`) {
			return "nobody waits for the turn"
		}
		return ""
	})
	_ = key.Rollback(soon(t))
	time.Sleep(1800 * time.Millisecond) // later than the stretch, it has nothing, which is no error either
	_ = turn.Rollback(soon(t))
	time.Sleep(time.Second)
	_ = renewal.Commit(soon(t))
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: a connection that this process may not see in the server is not taken for one that is gone.
//
// Interleaving: a login is changed now and then, as by a service that hands out credentials. The answer to a TryLock of the
// old login is lost, and its connection ends for this side alone. The new login is told neither when the old one's process
// began, nor to end it.
func TestConnectionOfAnotherLoginIsNotTakenForGone(t *testing.T) {
	t.Parallel()
	url := database(t)
	newSession(t, url)
	admin := connect(t, url)
	for _, role := range []string{"login_old", "login_new"} {
		exec(t, admin, `CREATE ROLE `+role+` LOGIN`)
		t.Cleanup(func() { exec(t, admin, `DROP OWNED BY `+role+`; DROP ROLE `+role) })
		exec(t, admin, `GRANT ALL ON ALL TABLES IN SCHEMA public TO `+role)
		exec(t, admin, `GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO `+role)
	}
	w, first := &wire{}, true
	pool := poolWith(t, url, func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = w.dial
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			if c.User = "login_new"; first {
				c.User, first = "login_old", false
			}
			return nil
		}
	})
	t.Cleanup(w.close)
	l, err := postgres.NewSession(pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, lock(t, l, "a", locker.WithTTL(long))) // its connection is kept
	w.cutLast(parted)
	_, err = l.TryLock(soon(t), "a", locker.WithTTL(long))
	if !errors.Is(err, locker.ErrOutcomeUnknown) || query[int](t, admin, keyed) != 1 {
		t.Errorf("the server has the lock still, and TryLock says %v", err)
	}
}
