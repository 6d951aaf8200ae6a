package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// Goal: locks that are taken by hand, as the documentation says, and ours exclude each other.
func TestSessionLocksExcludeAdvisoryLocksTakenByHand(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	admin, err := connect(t, url).Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Release()
	try := func(function string) (ok bool) {
		t.Helper()
		err := admin.QueryRow(context.Background(), `SELECT `+function+`(hashtextextended('a', 0))`).Scan(&ok)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	held := lock(t, l, "a")
	if try("pg_try_advisory_lock") {
		t.Error("psql got a lock that is held")
	}
	unlock(t, held)
	if !try("pg_try_advisory_lock") {
		t.Error("psql did not get a lock that is free")
	}
	if _, err := l.TryLock(context.Background(), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of a lock that psql holds: %v", err)
	}
	got := waits(t, l, "a")
	queued(t, l, "a", 1)
	try("pg_advisory_unlock")
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: a lock of the same name in another database of the server is another lock, which is
// not shown and not broken. The server's table of locks has both.
func TestSessionLocksOfAnotherDatabaseAreNoneOfOurs(t *testing.T) {
	held := lock(t, newSession(t, database(t)), "a", locker.WithTTL(long))
	l := newSession(t, database(t))
	if info, err := l.Inspect(soon(t), "a"); err != nil || info.Held {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if broken, err := l.Break(soon(t), "a"); broken || err != nil {
		t.Errorf("Break: %v, %v", broken, err)
	}
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("Renew: %v", err)
	}
	unlock(t, held)
}

// Goal: what is given
// back late is not the next goroutine's. Method: hold after hold runs into
// its maximum, and is released behind its holder's back while the next begins.
func TestLateReleaseOfALostSessionLockSparesTheNextHolder(t *testing.T) {
	url := database(t)
	a, b := newSession(t, url), newSession(t, url)
	for range 10 {
		first := brief(t, a, "a", locker.WithMaxHold(20*time.Millisecond))
		second := lock(t, a, "a", locker.WithTTL(long))
		if err := first.Unlock(context.Background()); !errors.Is(err, locker.ErrLost) {
			t.Fatalf("Unlock after the maximum hold: %v", err)
		}
		// An answer from the connection comes after everything before it.
		if err := second.Renew(soon(t)); err != nil {
			t.Fatal(err)
		}
		if other, err := b.TryLock(context.Background(), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Fatalf("TryLock of a lock that its holder's predecessor has given back late: %v, %v", other, err)
		}
		unlock(t, second)
		unlock(t, lock(t, b, "a")) // and nothing was counted twice
	}
}

func TestSessionLocksRefuseAPooler(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a pooler")
	}
	s := shared(t)
	bouncer := testserver.PgBouncer(t, s, "transaction")
	l := newSession(t, bouncer.URL(newDatabase(t, s, "")))
	_, err := l.TryLock(context.Background(), "a")
	if err == nil || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("TryLock through PgBouncer: %v", err)
	}
	if _, err := postgres.NewSession(connect(t, s.URL("postgres")), postgres.Options{Poll: time.Millisecond}); err == nil {
		t.Error("NewSession accepts Poll")
	}
}

func TestLeasesWorkThroughPgBouncer(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a pooler")
	}
	s := shared(t)
	for _, mode := range []string{"transaction", "statement", "session"} {
		t.Run(mode, func(t *testing.T) {
			url := testserver.PgBouncer(t, s, mode).URL(newDatabase(t, s, ""))
			handOver(t, newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{}))
		})
	}
}

// handOver does all that there is to do with a lock: it goes from one Locker to another,
// as if they were in two processes.
func handOver(t *testing.T, a, b lockerUnderTest) {
	t.Helper()
	held := lock(t, a, "a", locker.WithTTL(long))
	if info, err := b.Inspect(soon(t), "a"); err != nil || !info.Held || info.Token != held.Token() {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if _, err := b.TryLock(context.Background(), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of a held lock: %v", err)
	}
	got := make(chan *locker.Lock, 1)
	go func() {
		second, err := b.Lock(soon(t), "a", locker.WithHolder("the second"))
		if err != nil {
			t.Errorf("Lock: %v", err)
		}
		got <- second
	}()
	queued(t, a, "a", 1)
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("Renew: %v", err)
	}
	unlock(t, held)
	second := <-got
	if second == nil {
		return
	}
	if second.Token() <= held.Token() {
		t.Errorf("token %d follows %d", second.Token(), held.Token())
	}
	if info, err := a.Inspect(soon(t), "a"); err != nil || info.Holder != "the second" || info.Token != second.Token() {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	unlock(t, second)
}

// Goal: a lock that ends with its TTL is given back, and the others of the process stay.
func TestSessionLockThatExpiresIsGivenBackAlone(t *testing.T) {
	url := database(t)
	a, b := newSession(t, url), newSession(t, url)
	stays := lock(t, a, "stays", locker.WithTTL(long))
	first := brief(t, a, "a", locker.WithTTL(500*time.Millisecond), locker.WithoutRenewal())
	second := lock(t, b, "a")
	if err := first.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the first holder still believed when the second was granted: %v", err)
	}
	if err := stays.Renew(soon(t)); err != nil {
		t.Errorf("another lock: %v", err)
	}
	unlock(t, second)
	unlock(t, stays)
}

// The holder may unlock before it has heard that its session was ended. Whether the server's process is gone by then,
// which a busy machine takes long for, changes nothing. Method: nobody can ask, for the pool is closed.
func TestUnlockRightAfterABreakSaysThatTheLockWasLost(t *testing.T) {
	url := database(t)
	breaker := newSession(t, url)
	for range 5 {
		pool := poolWith(t, url, func(*pgxpool.Config) {})
		held := lock(t, opened(t, "/sessions", pool), "a")
		pool.Close()
		if broken, err := breaker.Break(soon(t), "a"); !broken || err != nil {
			t.Fatalf("Break: %v, %v", broken, err)
		}
		if err := held.Unlock(soon(t)); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	}
}

// Goal: a TryLock that finds a lock taken writes nothing. Method: the server's count of
// transactions that wrote, and its log.
func TestTryLockOfATakenLockWritesNothing(t *testing.T) {
	server := testserver.Postgres(t, "autovacuum=off", "bgwriter_lru_maxpages=0", "checkpoint_timeout=1d")
	url := server.URL("postgres")
	a, b := newSession(t, url), newSession(t, url)
	lock(t, a, "a", locker.WithTTL(long))
	_, _ = b.TryLock(soon(t), "a", locker.WithTTL(long)) // it has its connection
	admin := connect(t, url)
	written := `SELECT pg_snapshot_xmax(pg_current_snapshot())::text || ' ' || pg_current_wal_insert_lsn()::text`
	before := query[string](t, admin, written)
	for range 40 { // more than the numbers that a draw logs ahead
		if _, err := b.TryLock(soon(t), "a", locker.WithTTL(long)); !errors.Is(err, locker.ErrTaken) {
			t.Fatal(err)
		}
	}
	if after := query[string](t, admin, written); after != before {
		t.Errorf("next transaction and end of the log were %s, and are %s", before, after)
	}
}

// waits locks a name and gives it back, and returns a channel with what came of it.
func waits(t *testing.T, l locker.Locker, name string, opts ...locker.Option) <-chan error {
	got := make(chan error, 1)
	go func() {
		held, err := l.Lock(soon(t), name, append(opts, locker.WithTTL(long))...)
		if err == nil {
			err = held.Unlock(context.Background())
		}
		got <- err
	}()
	return got
}

// Goal: a waiter waits for as long as its caller wants, whatever the role's settings
// are for statements that are to be short.
func TestWaiterOutwaitsTheTimeoutsOfTheRole(t *testing.T) {
	t.Parallel()
	url := database(t)
	limits := "&statement_timeout=1000&lock_timeout=1000" // ours, which are short, end in time also where the machine stalls
	if query[bool](t, connect(t, url), `SELECT current_setting('transaction_timeout', true) IS NOT NULL`) {
		limits += "&transaction_timeout=1000" // it came with PostgreSQL 17
	}
	a, admin := newSession(t, url), connect(t, url)
	held := lock(t, a, "a", locker.WithTTL(long))
	const waiting = `SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
		WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted`
	var all []<-chan error
	for i, opts := range [][]locker.Option{nil, nil, {locker.WithShared()}} { // the first waits for the lock, the others for their turn
		all = append(all, waits(t, newSession(t, url+limits), "a", opts...))
		queued(t, a, "a", i+1)
	}
	first := query[string](t, admin, waiting)
	eventually(t, func() string {
		if query[bool](t, admin, `SELECT bool_or(clock_timestamp() - query_start < interval '3 seconds') FROM pg_stat_activity WHERE pid = ANY (string_to_array($1, ' ')::int[])`, first) {
			return "they have not waited for so long"
		}
		return ""
	})
	if again := query[string](t, admin, waiting); again != first {
		t.Errorf("%s wait, and no longer %s", again, first)
	}
	unlock(t, held)
	for _, got := range all {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

// waitingPid is the process of the server that waits for an advisory lock.
const waitingPid = `SELECT coalesce(min(pid), 0) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
	WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted`

// Goal: a waiter whose connection ends on the server's side alone does not wait for
// ever. Method: no answer gets through on its connection any more, and the server's
// process is ended. The network keeps the waiter's side open.
func TestWaiterWhoseConnectionEndsOnTheOtherSideAloneWaitsOnAnother(t *testing.T) {
	t.Parallel()
	url := database(t)
	a := newSession(t, url)
	held := lock(t, a, "a", locker.WithTTL(long))
	pool, w := wired(t, url)
	b := onPool(t, "/sessions", pool).(*postgres.SessionLocker)
	postgres.Stretch(b, time.Second)
	got := make(chan error, 1)
	go func() { got <- passes(soon(t), b, "a", locker.WithTTL(time.Second)) }()
	queued(t, a, "a", 1)
	admin := connect(t, url)
	first := query[int](t, admin, waitingPid)
	w.cutLast(deafer)
	exec(t, admin, `SELECT pg_terminate_backend($1)`, first)
	eventually(t, func() string {
		if again := query[int](t, admin, waitingPid); again == 0 || again == first {
			return "it does not wait on another connection"
		}
		return ""
	})
	unlock(t, held)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: rows that dead connections have left, and rows that are gone, mean nothing.
func TestRowsOfSessionLocksDecideNothing(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	a := newSession(t, url)
	held := lock(t, a, "a")
	exec(t, admin, `TRUNCATE lockstile_session`)
	exec(t, admin, `INSERT INTO lockstile_session (name, pid, token, holder, ttl) VALUES ('b', 0, 1 << 40, 'nobody', 1000)`)
	if infos, err := a.List(soon(t), ""); err != nil || len(infos) != 0 {
		t.Errorf("List of what has no row, or no connection: %+v, %v", infos, err)
	}
	b := newSession(t, url)
	if _, err := b.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of a held lock without a row: %v", err)
	}
	unlock(t, held)
	unlock(t, lock(t, b, "a"))
	unlock(t, lock(t, b, "b"))
	if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_session WHERE pid = 0`); n != 0 {
		t.Error("the row of a connection that is gone is left")
	}
}

// crashBetween kills the server between two locks of a name, whose tokens must increase.
func crashBetween(t *testing.T, server *testserver.PostgresServer, l locker.Locker) {
	t.Helper()
	first := lock(t, l, "a")
	server.Kill()
	server.Start()
	// The first answer may be that of a connection which the clean-up began while the server was starting.
	ctx := soon(t)
	second, err := l.Lock(ctx, "a")
	for errors.Is(err, locker.ErrUnavailable) && ctx.Err() == nil {
		second, err = l.Lock(ctx, "a")
	}
	if err != nil {
		t.Fatal(err)
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d follows %d", second.Token(), first.Token())
	}
}

// Goal: no token of a session lock comes back, though few of them wait for the disk.
//
// Interleaving: a transaction's draw has the server log the sequence 32 numbers ahead,
// and is not committed. The session's draw is among them: there is nothing to log. The
// server crashes, and begins again before both.
func TestTokenOfASessionLockOutlastsACrash(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres")
	newSession(t, url) // makes the schema, on disk: whatever the crash takes, it is not that
	l := newSession(t, url+careless)
	onANewPage(t, url)
	if _, err := postgres.LockTx(soon(t), begun(t, url), "another"); err != nil {
		t.Fatal(err)
	}
	crashBetween(t, server, l)
}

// Goal: an attempt that a standby refused holds nothing when that is promoted.
func TestLockThatAStandbyRefusedIsNotHeldAfterItsPromotion(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a standby")
	}
	t.Parallel()
	primary := testserver.Postgres(t)
	newSession(t, primary.URL("postgres"))
	standby := testserver.PostgresStandby(t, primary, primary.Addr(), nil)
	early := opened(t, "a/sessions", connect(t, standby.URL("postgres")))
	if _, err := early.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrUnavailable) {
		t.Fatalf("TryLock on a standby: %v", err)
	}
	admin := connect(t, standby.URL("postgres"))
	eventually(t, func() string {
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1`) > 0 {
			return "the lock that was refused is held"
		}
		return ""
	})
	primary.Kill()
	standby.Promote()
	unlock(t, lock(t, newSession(t, standby.URL("postgres")), "a"))
	unlock(t, lock(t, early, "a"))
}

// Goal: what is not logged works on a standby that knows of it from the log alone.
func TestSchemaThatAStandbyHasFromTheLogWorksAfterItsPromotion(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a standby")
	}
	t.Parallel()
	primary := testserver.Postgres(t)
	standby := testserver.PostgresStandby(t, primary, primary.Addr(), nil)
	l := newSession(t, primary.URL("postgres"))
	held := lock(t, l, "a")
	unlock(t, held)
	lsn := query[string](t, connect(t, primary.URL("postgres")), `SELECT pg_current_wal_flush_lsn()::text`)
	admin := connect(t, standby.URL("postgres"))
	eventually(t, func() string {
		if !query[bool](t, admin, `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, lsn) {
			return "the standby lags"
		}
		return ""
	})
	primary.Kill()
	standby.Promote()
	next := lock(t, opened(t, "a/sessions", connect(t, standby.URL("postgres"))), "a")
	if next.Token() <= held.Token() {
		t.Errorf("token %d follows %d", next.Token(), held.Token())
	}
	unlock(t, next)
}

// refuseRows has the server refuse to insert or delete the row of a name.
func refuseRows(t *testing.T, pool *pgxpool.Pool, event, name string) {
	t.Helper()
	record := map[string]string{"INSERT": "NEW", "DELETE": "OLD"}[event]
	exec(t, pool, `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$`)
	exec(t, pool, `CREATE TRIGGER refuse BEFORE `+event+` ON lockstile_session FOR EACH ROW WHEN (`+record+`.name = '`+name+`') EXECUTE FUNCTION refuse()`)
}

// An advisory lock outlives the error of the statement that took it.
func TestSessionLockWhoseRowCannotBeWrittenIsNotHeld(t *testing.T) {
	url := database(t)
	l, pool := newSession(t, url), connect(t, url)
	stays := lock(t, l, "stays")
	refuseRows(t, pool, "INSERT", "a")
	if held, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrUnavailable) {
		t.Fatalf("%v, %v", held, err)
	}
	if !query[bool](t, pool, `SELECT pg_try_advisory_lock(hashtextextended('a', 0))`) {
		t.Error("the connection holds a lock that nobody was granted")
	}
	unlock(t, stays)
}

// Goal: the server ends a connection whose process vanished, and none whose lock is believed in.
// Method: what the server itself says that it has set, for TTLs of all lengths.
func TestServerIsAsPatientAsTheLock(t *testing.T) {
	l := newSession(t, database(t))
	setting := func(name string) time.Duration {
		t.Helper()
		n, err := postgres.Setting(soon(t), l, name)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n)
	}
	unlock(t, lock(t, l, "a", locker.WithTTL(long)))
	if every := setting("client_connection_check_interval") * time.Millisecond; every != time.Second {
		t.Errorf("a waiter whose process has ended is looked for every %v", every)
	}
	for _, ttl := range []time.Duration{long, 2 * time.Minute, time.Hour, locker.MaxTTL, long} {
		unlock(t, lock(t, l, "a", locker.WithTTL(ttl))) // on the same connection each time
		if idle := setting("idle_session_timeout") * time.Millisecond; idle != ttl+time.Second {
			t.Errorf("a TTL of %v: the server ends a connection that is silent for %v", ttl, idle)
		}
		if unsent := setting("tcp_user_timeout") * time.Millisecond; unsent <= ttl {
			t.Errorf("a TTL of %v: the server ends a connection whose answer was not confirmed for %v", ttl, unsent)
		}
		idle, between, count := setting("tcp_keepalives_idle"), setting("tcp_keepalives_interval"), setting("tcp_keepalives_count")
		if all := (idle + between*count) * time.Second; idle == 0 || all <= ttl || all > 2*ttl+10*time.Second {
			t.Errorf("a TTL of %v: keep-alives after %d s, then %d of them every %d s", ttl, idle, count, between)
		}
	}
}

// Goal: all that bounds the server's patience is set, also where the role has a part of it set
// to just the same.
func TestPatienceOfTheServerIsSetWhateverTheRoleSays(t *testing.T) {
	l := newSession(t, database(t)+"&idle_session_timeout=61000&tcp_user_timeout=5000")
	unlock(t, lock(t, l, "a", locker.WithTTL(time.Minute)))
	for _, name := range []string{"idle_session_timeout", "tcp_user_timeout"} {
		if ms, err := postgres.Setting(soon(t), l, name); err != nil || ms != 61000 {
			t.Errorf("%s is %d ms (%v), want a second more than the TTL", name, ms, err)
		}
	}
}

// Goal: a waiter that gives up just when its turn comes leaves no connection behind, which
// would count for ever, and stay open after Close.
func TestWaitersThatGiveUpAsTheirTurnComesLeaveNoConnectionBehind(t *testing.T) {
	url := database(t)
	a, admin, pool := newSession(t, url), connect(t, url), connect(t, url+"&application_name=waiter")
	b, err := postgres.NewSession(pool, postgres.Options{})
	ready(t, b, err)
	for i := range 20 {
		held := lock(t, a, "a", locker.WithTTL(long))
		ctx, cancel := context.WithCancel(soon(t))
		got := make(chan error, 1)
		go func() {
			next, err := b.Lock(ctx, "a", locker.WithTTL(time.Hour))
			if err == nil {
				err = next.Unlock(context.Background())
			}
			got <- err
		}()
		queued(t, a, "a", 1)
		switch i % 3 {
		case 0:
			cancel()
		case 1:
			go cancel()
		}
		unlock(t, held)
		cancel()
		if err := <-got; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	unlock(t, lock(t, a, "a"))
	eventually(t, func() string {
		if open, spare := postgres.Connections(b); open != spare {
			return fmt.Sprintf("%d connections, and %d of them are spare", open, spare)
		}
		return ""
	})
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, func() string {
		if n := query[int32](t, admin, `SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'waiter'
			AND datname = current_database()`); n != pool.Stat().TotalConns() {
			return fmt.Sprintf("%d connections after Close, and the pool has %d", n, pool.Stat().TotalConns())
		}
		return ""
	})
}

// Goal: a connection for each lock, and not one too many. What is given back is used again.
func TestLockThatWouldNeedTooManyConnectionsIsRefused(t *testing.T) {
	url := database(t)
	a, b := newSession(t, url), newSession(t, url)
	const limit = 32
	all := make(chan *locker.Lock, limit+5)
	for i := range cap(all) { // at once, as a program begins
		go func() {
			held, err := a.TryLock(soon(t), fmt.Sprint(i), locker.WithTTL(long))
			if err != nil && (!errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "pool_max_conns")) {
				t.Errorf("TryLock: %v", err)
			}
			all <- held
		}()
	}
	var held []*locker.Lock
	for range cap(all) {
		if l := <-all; l != nil {
			held = append(held, l)
		}
	}
	if open, spare := postgres.Connections(a); len(held) != limit || open != limit || spare != 0 {
		t.Fatalf("%d locks on %d connections, and %d more", len(held), open, spare)
	}
	if _, err := a.Lock(soon(t), "one more"); !errors.Is(err, locker.ErrRefused) {
		t.Errorf("Lock: %v", err)
	}
	unlock(t, held[0])
	unlock(t, lock(t, a, "one more"))
	for _, l := range held[1:] {
		unlock(t, l)
	}
	unlock(t, lock(t, onPool(t, "/sessions", connect(t, url+"&pool_max_conns=40")), "another"))
	for i := range 5 {
		held := lock(t, a, fmt.Sprint(i))
		got := waits(t, b, fmt.Sprint(i))
		queued(t, a, fmt.Sprint(i), 1)
		unlock(t, held)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	}
	if open, spare := postgres.Connections(b); open != 1 || spare != 1 {
		t.Errorf("%d connections, %d of them spare, for one lock after another", open, spare)
	}
}

// A connection that nobody has ends by itself, before the server ends it and says so in its log, and a lock that takes it
// meanwhile keeps it for longer.
func TestSpareConnectionIsClosed(t *testing.T) {
	t.Parallel()
	url := database(t)
	l, admin := newSession(t, url), connect(t, url)
	if err := passes(soon(t), l, "a", locker.WithTTL(time.Second)); err != nil {
		t.Fatal(err)
	}
	held := lock(t, l, "a", locker.WithTTL(long))
	first := query[int](t, admin, `SELECT pid FROM lockstile_session WHERE name = 'a'`)
	<-time.After(1500 * time.Millisecond) // more than the TTL of before
	if held.Err() != nil || query[int](t, admin, `SELECT pid FROM lockstile_session WHERE name = 'a'`) != first {
		t.Fatalf("the connection of a held lock has ended: %v", held.Err())
	}
	unlock(t, held)
	if err := passes(soon(t), l, "b", locker.WithTTL(time.Second)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if open, _ := postgres.Connections(l); open > 0 {
			return "a connection that nobody has is kept"
		}
		return ""
	})
	unlock(t, lock(t, l, "a"))
}

// Goal: a lock on a connection that is silent for a while is kept, and a spare connection that fell silent, which nobody
// hears of, costs the next lock no more than a question.
func TestSilentConnectionKeepsItsLockAndIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	pool, w := wired(t, database(t))
	a := onPool(t, "/sessions", pool)
	held, other := lock(t, a, "a", locker.WithTTL(long)), lock(t, a, "b", locker.WithTTL(long))
	unlock(t, other)
	<-time.After(1100 * time.Millisecond) // from then on it is asked first
	w.cut(deaf)
	w.repair()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second) // less than an answer may take
	defer cancel()
	next, err := a.TryLock(ctx, "b", locker.WithTTL(long))
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Err(); err != nil {
		t.Errorf("the lock on the silent connection: %v", err)
	}
	unlock(t, next)
}

// Goal: a migration under a session lock ends, though others wait for the lock. Method: three processes, and short stretches.
//
// Interleaving (golang-migrate 960): each waiter's statement has a snapshot, for which CREATE INDEX CONCURRENTLY waits; the waiters wait for the
// lock, and the lock for the index.
func TestIndexIsMadeUnderASessionLockThatOthersWaitFor(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, admin := newSession(t, url), connect(t, url)
	exec(t, admin, `CREATE TABLE big AS SELECT i FROM generate_series(1, 1000) i`)
	held := lock(t, a, "a", locker.WithTTL(long))
	var all []<-chan error
	for i := range 3 {
		l := newSession(t, url)
		postgres.Stretch(l, 2*time.Second)
		all = append(all, waits(t, l, "a"))
		queued(t, a, "a", i+1)
	}
	oldest := query[string](t, admin, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text`)
	const waiting = `SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()`
	first := query[string](t, admin, waiting)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := admin.Exec(ctx, `CREATE INDEX CONCURRENTLY ON big (i)`); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if query[bool](t, admin, `SELECT bool_or(backend_xmin::text::bigint <= $1::text::bigint) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()`, oldest) {
			return "a waiter keeps a snapshot from before"
		}
		if now := query[string](t, admin, `SELECT coalesce((`+waiting+`), '')`); now != first {
			return now + " wait, and no longer " + first
		}
		return ""
	})
	unlock(t, held)
	for _, got := range all {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}
