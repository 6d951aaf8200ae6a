package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// careless is a database whose sessions do not wait for the disk.
const careless = "&synchronous_commit=off"

func TestLeasesSurviveACrashOfTheServer(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres") + careless
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	tooShort := lock(t, a, "b", locker.WithTTL(long))
	unlock(t, tooShort)
	held := lock(t, a, "a", locker.WithTTL(long))
	server.Kill()
	server.Start()
	if _, err := b.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of a lock that was held before the crash: %v", err)
	}
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("Renew after the crash: %v", err)
	}
	unlock(t, held)
	second := lock(t, b, "a")
	if second.Token() <= held.Token() {
		t.Errorf("token %d follows %d", second.Token(), held.Token())
	}
	unlock(t, second)
}

// Goal: what somebody was told is on disk, whatever the role says: that a lease goes
// on, and that a value is refused from now on. Method: the statements themselves, and a
// crash right after each.
func TestRenewalsAndMarksSurviveACrashWhateverTheRoleSays(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres") + careless
	newLocker(t, url, postgres.Options{})
	const row = `(SELECT value || expires FROM lockstile_lease)`
	for what, c := range map[string]struct{ do, see string }{
		"granted":             {`SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)`, row},
		"granted to a reader": {`SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false, -1)`, row},
		"asked for again":     {`SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)`, row},
		"renewed":             {`SELECT lockstile_renew_5(ARRAY['a'], ARRAY['mine'], ARRAY[600000], false)`, row},
		"kept":                {`SELECT lockstile_release_5('a', 'mine', false, 0, 600000)`, row},
		"withdrawn":           {`SELECT lockstile_release_5('b', 'late', true, 600000, 0)`, `(SELECT value || until FROM lockstile_mark WHERE NOT forced)`},
		"broken":              {`SELECT lockstile_break_5('a', ARRAY(SELECT token FROM lockstile_lease), 600000)`, `(SELECT value || until FROM lockstile_mark WHERE forced)`},
	} {
		pool := connect(t, url)
		exec(t, pool, `DELETE FROM lockstile_lease`)
		exec(t, pool, `DELETE FROM lockstile_mark`)
		if !strings.HasPrefix(what, "granted") {
			query[string](t, pool, `SELECT lockstile_acquire_5('a', 'mine', 600000, '', false, '', 0, 0, false)::text`)
		}
		exec(t, connect(t, server.URL("postgres")), `CHECKPOINT`)
		query[string](t, pool, `SELECT (`+c.do[len("SELECT "):]+`)::text`)
		told := query[string](t, pool, `SELECT `+c.see)
		server.Kill()
		server.Start()
		if after := query[string](t, connect(t, url), `SELECT coalesce(`+c.see+`, '')`); after != told {
			t.Errorf("%s: %q before the crash, %q after it", what, told, after)
		}
	}
}

// Goal: no token comes back after a crash, whatever draws it. Method: many
// crashes right after a draw, in sessions that do not wait for the disk.
func TestTokensNeverGoBackOverCrashes(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres") + careless
	leases, sessions := newLocker(t, url, postgres.Options{}), newSession(t, url)
	pool := connect(t, url)
	var last fencing.Token
	check := func(what string, token fencing.Token) {
		if token <= last {
			t.Errorf("%s: token %d follows %d", what, token, last)
		}
		last = token
		server.Kill()
		server.Start()
	}
	for range 3 {
		check("leases", lock(t, leases, rare()).Token())
		check("sessions", lock(t, sessions, rare()).Token())
		check("transaction", lockTx(t, pool, rare()))
	}
}

// Goal: the token of a transaction that has committed never comes back, also if it
// wrote nothing else.
//
// Interleaving: one transaction's draw has the server log the sequence 32 values
// ahead, and is not committed. A second one's draw is among them: there is nothing
// to log, and so there was nothing that its commit waited for. The server crashes,
// and begins again before both.
func TestTokenOfACommittedTransactionOutlastsACrash(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres")
	newSession(t, url)
	pool := connect(t, url)
	open, err := pool.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	onANewPage(t, url)
	if _, err := postgres.LockTx(soon(t), open, "another"); err != nil {
		t.Fatal(err)
	}
	first := lockTx(t, connect(t, url), "a")
	server.Kill()
	server.Start()
	if second := lockTx(t, connect(t, url), "a"); second <= first {
		t.Errorf("token %d follows %d", second, first)
	}
	_ = open.Rollback(context.Background()) // its connection is gone
}

// rare is a name that nobody uses a second time.
func rare() string { return "name " + time.Now().String() }

func lockTx(tb testing.TB, pool *pgxpool.Pool, name string) fencing.Token {
	tb.Helper()
	pool.Reset() // the connections of a server that crashed
	tx, err := pool.Begin(soon(tb))
	if err != nil {
		tb.Fatal(err)
	}
	token, err := postgres.LockTx(soon(tb), tx, name)
	if err != nil {
		tb.Fatal(err)
	}
	if err := tx.Commit(soon(tb)); err != nil {
		tb.Fatal(err)
	}
	return token
}

func TestSessionLocksAreLostAtOnceWhenTheServerCrashes(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	a, b := newSession(t, server.URL("postgres")), newSession(t, server.URL("postgres"))
	var held []*locker.Lock
	for _, name := range []string{"a", "b", "c"} {
		held = append(held, lock(t, a, name, locker.WithTTL(long)))
	}
	server.Kill()
	for _, l := range held {
		select {
		case <-l.Lost(): // long before the end of its TTL
		case <-time.After(patience):
			t.Fatal("a lock on a dead connection is still believed in")
		}
		var lost *locker.LostError
		if !errors.As(l.Err(), &lost) || lost.Reason != locker.ReasonSessionEnded {
			t.Errorf("Err: %v", l.Err())
		}
	}
	server.Start()
	second := lock(t, b, "a")
	if second.Token() <= held[0].Token() {
		t.Errorf("token %d follows %d", second.Token(), held[0].Token())
	}
	unlock(t, second)
	unlock(t, lock(t, a, "a")) // and the first Locker works again
}

// Goal: a request that arrives after its clean-up is refused.
func TestRequestThatArrivesAfterItsCleanUpIsRefused(t *testing.T) {
	url := database(t)
	b := newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	pool, w := wired(t, url)
	a, err := postgres.New(pool, postgres.Options{})
	a = ready(t, a, err)
	warmUp(t, a, pool)
	w.cut(slow)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err = a.TryLock(ctx, "a", locker.WithTTL(long))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("TryLock without an answer: %v", err)
	}
	if !errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("TryLock whose clean-up cannot be confirmed: %v", err)
	}
	w.repair()
	eventually(t, func() string {
		if query[int](t, admin, `SELECT count(*)::int FROM lockstile_mark`) == 0 {
			return "the attempt was not cleaned up"
		}
		return ""
	})
	calls := `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`
	before := query[int64](t, admin, calls)
	if w.deliver() == 0 {
		t.Fatal("nothing was held back: the test tests nothing")
	}
	eventually(t, func() string { // carried out: the connection it came over is idle again, or gone
		exec(t, admin, `SELECT pg_stat_clear_snapshot()`)
		busy := query[int](t, admin, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()
			AND pid <> pg_backend_pid() AND state <> 'idle'`)
		if busy > 0 || query[int64](t, admin, calls) <= before {
			return "the late request has not been carried out"
		}
		return ""
	})
	held, err := b.TryLock(soon(t), "a")
	if err != nil {
		t.Fatalf("TryLock after a late request: %v", err)
	}
	unlock(t, held)
}

// Goal: what is sent again because its answer was lost with the connection is
// done once. Method: every connection breaks when the answer comes; the next one
// is whole.
func TestLeaseStatementsCanBeSentTwice(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	pool, w := wired(t, url)
	a, err := postgres.New(pool, postgres.Options{})
	a = ready(t, a, err)
	warmUp(t, a, pool)
	w.cut(dying)
	w.repair()
	held, err := a.TryLock(soon(t), "a", locker.WithTTL(long))
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	if token := query[fencing.Token](t, admin, `SELECT token FROM lockstile_lease`); token != held.Token() {
		t.Errorf("the store has token %d, the holder %d", token, held.Token())
	}
	warmUp(t, a, pool)
	w.cut(dying)
	w.repair()
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("Renew: %v", err)
	}
	warmUp(t, a, pool)
	w.cut(dying)
	w.repair()
	if err := held.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// Goal: a Break whose answer is lost still reports that somebody had the lock.
func TestBreakThatIsSentTwiceSaysThatSomebodyHadTheLock(t *testing.T) {
	url := database(t)
	held := lock(t, newLocker(t, url, postgres.Options{}), "a", locker.WithTTL(long))
	pool, w := wired(t, url)
	a, err := postgres.New(pool, postgres.Options{})
	a = ready(t, a, err)
	info, err := a.Inspect(soon(t), "a") // the connection is there
	if err != nil || info.Token != held.Token() {
		t.Fatalf("Inspect: %+v, %v", info, err)
	}
	w.cutAt("lockstile_break", dying)
	if broken, err := a.Break(soon(t), "a"); !broken || err != nil {
		t.Errorf("Break: %v, %v", broken, err)
	}
	if err := held.Renew(soon(t)); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Renew: %v", err)
	}
}

// The answer to a Break is lost, and somebody else has the lock by the time that it is
// sent again. One holder was to be broken, and the next must not be.
func TestBreakWhoseAnswerIsLostBreaksOneHolder(t *testing.T) {
	url := database(t)
	first, second := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	held := lock(t, first, "a", locker.WithTTL(long))
	next := make(chan *locker.Lock, 1)
	go func() {
		lock, err := second.Lock(soon(t), "a", locker.WithTTL(long))
		if err != nil {
			t.Error(err)
		}
		next <- lock
	}()
	queued(t, first, "a", 1)
	admin := connect(t, url)
	const breaks = `SELECT lockstile_break_5('a', ARRAY[$1::bigint], 600000)`
	if !query[bool](t, admin, breaks, int64(held.Token())) {
		t.Error("nobody was broken")
	}
	lock := <-next
	if query[bool](t, admin, breaks, int64(held.Token())) {
		t.Error("sent again, it says that somebody was broken")
	}
	if lock != nil {
		if err := lock.Renew(soon(t)); err != nil {
			t.Errorf("the next holder: %v", err)
		}
	}
	var lost *locker.LostError
	if err := held.Renew(soon(t)); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced {
		t.Errorf("the first holder: %v", err)
	}
}
