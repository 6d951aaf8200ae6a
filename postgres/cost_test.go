package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// Goal: one round trip to lock and one to unlock, seen from the network and from
// the server, on a connection that has been used before.
func TestLockAndUnlockTakeOneRoundTripEach(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, "CREATE EXTENSION pg_stat_statements")
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		open(t, url) // the schema
		pool, w := wired(t, url)
		l := onPool(t, t.Name(), pool)
		warmUp(t, l, pool)
		statements := func() int64 {
			return query[int64](t, admin, `SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements s
				JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database() AND (s.query LIKE '%lockstile_%' OR s.query LIKE '%unlock_all%')
				AND s.query NOT LIKE '%pg_stat_statements%' AND s.query NOT LIKE '%sweep%'`)
		}
		for i := range 5 {
			sent, done := w.trips.Load(), statements()
			held := lock(t, l, fmt.Sprint("name ", i))
			locked := w.trips.Load()
			if locked-sent != 1 {
				t.Errorf("Lock took %d round trips", locked-sent)
			}
			unlock(t, held)
			if n := w.trips.Load() - locked; n != 1 {
				t.Errorf("Unlock took %d round trips", n)
			}
			if n := statements() - done; n != 2 {
				t.Errorf("Lock and Unlock took %d statements", n)
			}
		}
	})
}

// Goal: what is done with every lock is planned once, and not anew each time,
// which would cost the server more than to do it. Method: it counts its plans,
// those inside of functions too.
func TestServerPlansNothingForALeaseOnAConnectionItKnows(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, "CREATE EXTENSION pg_stat_statements")
	exec(t, admin, `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET pg_stat_statements.track = "all"', current_database());
		EXECUTE format('ALTER DATABASE %I SET pg_stat_statements.track_planning = on', current_database());
		END $$`)
	counted := func(what string) int64 {
		return query[int64](t, admin, `SELECT coalesce(sum(`+what+`), 0)::bigint FROM pg_stat_statements s
			JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database() AND NOT s.toplevel
			AND (s.query LIKE 'INSERT INTO %.lockstile%' OR s.query LIKE 'DELETE FROM %.lockstile%')`)
	}
	pool := connect(t, url+"&pool_max_conns=1")
	l := onPool(t, "/leases", pool)
	warmUp(t, l, pool)
	for range 10 {
		unlock(t, lock(t, l, "a"))
	}
	plans, calls := counted("plans"), counted("calls")
	for range 10 {
		unlock(t, lock(t, l, "a"))
	}
	if n := counted("calls") - calls; n != 20 {
		t.Errorf("the server counted %d statements that write inside of functions, of 10 locks and releases", n)
	}
	if n := counted("plans") - plans; n != 0 {
		t.Errorf("the server planned %d statements anew", n)
	}
}

// Goal: an exclusive lock has the server do no more for the other kinds that there are.
// Method: it counts the statements inside of functions.
func TestExclusiveLockTakesAFewStatementsInsideOfFunctions(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, "CREATE EXTENSION pg_stat_statements")
	exec(t, admin, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET pg_stat_statements.track = "all"', current_database()); END $$`)
	pool := connect(t, url+"&pool_max_conns=1")
	l := onPool(t, "/leases", pool)
	warmUp(t, l, pool)
	counted := func() int {
		return query[int](t, admin, `SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements s
			JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database() AND NOT s.toplevel`)
	}
	before := counted()
	unlock(t, lock(t, l, "a"))
	if n := counted() - before; n != 4 { // two looks, and the row that comes and goes: as before there were other kinds
		t.Errorf("Lock and Unlock took %d statements inside of functions", n)
	}
}

// Goal: a TryLock that finds the lock taken leaves nothing behind: no transaction
// number and nothing in the log. Method: the statement itself, in a transaction of its
// own. Where the lock is free, the same statement leaves both.
func TestTryLockThatFindsItTakenWritesNothing(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t, "autovacuum=off").URL("postgres") // nobody else writes
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	held := []*locker.Lock{lock(t, a, "taken", locker.WithTTL(long)), lock(t, a, "shared", locker.WithShared(), locker.WithTTL(long)),
		lock(t, a, "slot", locker.WithSlots(1), locker.WithTTL(long))}
	writer := waits(t, b, "shared")
	queued(t, a, "shared", 1)
	for _, c := range []struct {
		name  string
		slots int
		token int64
	}{{"taken", 0, 0}, {"taken", -1, 0}, {"shared", 0, 0}, {"shared", -1, 0}, {"slot", 1, 0}, {"slot", 0, -2}, {"free", 0, 1}, {"free", -1, 1}} {
		tx := begun(t, url)
		start := ask[string](t, tx, `SELECT pg_current_wal_insert_lsn()::text`)
		token := ask[int64](t, tx, `SELECT (lockstile_acquire_5($1, 'x', 60000, '', false, '', 0, 0, false, $2))._token`, c.name, c.slots)
		writes := c.token > 0
		if ask[bool](t, tx, `SELECT pg_current_xact_id_if_assigned() IS NOT NULL`) != writes || min(token, 1) != c.token {
			t.Errorf("%+v: it was answered %d, and has a transaction number, or has none", c, token)
		}
		if grew := ask[bool](t, tx, `SELECT pg_current_wal_insert_lsn() > $1::pg_lsn`, start); grew != writes {
			t.Errorf("%+v: it wrote to the log: %v", c, grew)
		}
		if err := tx.Rollback(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range held {
		unlock(t, l)
	}
	if err := <-writer; err != nil {
		t.Error(err)
	}
}

// Goal: nobody waits for a disk because somebody else has the lock. Method: what
// was written before is on disk afterwards only if something waited for it.
func TestWaitersAndReleasesDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t, lazy...).URL("postgres")
	newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	waits := map[string]int{}
	const n = 50
	count := func(what, sql string, args ...any) {
		start := query[string](t, admin, `SELECT pg_current_wal_insert_lsn()::text`)
		query[string](t, admin, `SELECT (`+sql+`)::text`, args...)
		if query[bool](t, admin, `SELECT pg_current_wal_flush_lsn() > $1::pg_lsn`, start) {
			waits[what]++
		}
	}
	for i := range n {
		count("granted", `lockstile_acquire_5('a', 'v' || $1::int, 60000, '', false, '', 0, 0, false)`, i)
		count("queued", `lockstile_acquire_5('a', 'w' || $1::int, 60000, '', true, '', 60000, 0, false)`, i)
		count("released", `lockstile_release_5('a', 'v' || $1::int, false, 0, 0)`, i)
		count("withdrawn", `lockstile_release_5('a', 'w' || $1::int, true, 0, 0)`, i)
	}
	if waits["granted"] != n {
		t.Errorf("%d of %d grants are seen to wait for the disk: the test tests nothing", waits["granted"], n)
	}
	for _, what := range []string{"queued", "released", "withdrawn"} {
		if waits[what] > n/10 { // the server has things to do for itself
			t.Errorf("%s: %d of %d waited for the disk", what, waits[what], n)
		}
	}
}

// Goal: a lock goes from process to process in three requests: to queue, to give it
// back, to claim it. Method: two processes that take turns, each waiting while the other
// holds the lock, and the server's count of statements.
func TestLockGoesFromProcessToProcessInThreeRequests(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, "CREATE EXTENSION pg_stat_statements")
	var pools [2]*pgxpool.Pool
	var lockers [2]locker.Locker
	for i := range lockers {
		pools[i] = connect(t, url+"&pool_max_conns=1")
		lockers[i] = onPool(t, "/leases", pools[i])
		warmUp(t, lockers[i], pools[i])
	}
	held := lock(t, lockers[0], "a", locker.WithTTL(long))
	turn := func(i int) {
		got := make(chan *locker.Lock, 1)
		go func() {
			next, err := lockers[i%2].Lock(soon(t), "a", locker.WithTTL(long))
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		eventually(t, func() string {
			if query[int](t, admin, `SELECT count(*)::int FROM lockstile_queue`) == 0 {
				return "nobody waits"
			}
			return ""
		})
		unlock(t, held)
		if held = <-got; held == nil {
			t.FailNow()
		}
	}
	const n = 20
	for i := range 3 { // each listens by then
		turn(i + 1)
	}
	requests := func() int {
		return query[int](t, admin, `SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
			WHERE d.datname = current_database() AND s.query NOT LIKE '%pg_stat_statements%' AND s.query NOT LIKE '%FROM lockstile_queue'`)
	}
	before := requests()
	for i := range n {
		turn(i)
	}
	if sent := requests() - before; sent > 3*n+2 { // and a sign of life now and then
		t.Errorf("%d requests for %d hand-overs", sent, n)
	}
	unlock(t, held)
}

// Goal: held locks share their renewals. Method: wait until the server has
// extended the lease of every one of them, and count its statements.
func TestRenewalsOfManyLocksShareStatements(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, "CREATE EXTENSION pg_stat_statements")
	l := newLocker(t, url, postgres.Options{})
	const n = 300
	for i := range n / 3 { // of one name there are several
		holder, ttl := locker.WithHolder(fmt.Sprint(i)), locker.WithTTL(3*time.Second)
		lock(t, l, fmt.Sprint("alone ", i), holder, ttl)
		lock(t, l, fmt.Sprint("shared ", i/5), holder, ttl, locker.WithShared())
		lock(t, l, fmt.Sprint("slots ", i/5), holder, ttl, locker.WithSlots(5))
	}
	last := query[time.Time](t, admin, `SELECT max(expires) FROM lockstile_lease`)
	eventually(t, func() string {
		left := query[int](t, admin, `SELECT count(*)::int FROM lockstile_lease WHERE expires <= $1`, last)
		if left > 0 {
			return fmt.Sprint(left, " locks were not renewed")
		}
		return ""
	})
	calls := query[int](t, admin, `SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE d.datname = current_database() AND s.query LIKE '%lockstile_renew_%' AND s.query NOT LIKE '%pg_stat%'`)
	if calls == 0 || calls > n/10 {
		t.Errorf("%d statements renewed %d locks", calls, n)
	}
}

// Goal: many waiters of one process need no connection each, exclude each other
// and see tokens in the order of grants.
func TestThousandWaitersOfOneProcessShareAHandfulOfConnections(t *testing.T) {
	t.Parallel()
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		admin := connect(t, url)
		mine := query[int](t, admin, sqlConnections) // those of the test
		l := open(t, url+"&pool_max_conns=4")
		held := lock(t, l, "popular")
		const n = 1000
		seen := newWitness(t)
		var wait sync.WaitGroup
		for range n {
			wait.Go(func() { seen.visit(l, "popular") })
		}
		unlock(t, held)
		wait.Wait()
		if c := query[int](t, admin, sqlConnections) - mine; c > 6 {
			t.Errorf("%d connections", c)
		}
		if seen.visits != n {
			t.Errorf("%d of %d waiters got the lock", seen.visits, n)
		}
	})
}

const sqlConnections = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()`

// witness is what the lock protects. Two holders at once, or a token that does not
// increase, fail the test.
type witness struct {
	t      *testing.T
	ctx    context.Context
	mu     sync.Mutex
	inside string
	visits int
	last   *locker.Lock
}

func newWitness(t *testing.T) *witness { return &witness{t: t, ctx: soon(t)} }

func (w *witness) visit(l locker.Locker, name string) {
	held, err := l.Lock(w.ctx, name)
	if err != nil {
		w.t.Errorf("Lock: %v", err)
		return
	}
	w.enter(held)
	w.leave()
	if err := held.Unlock(w.ctx); err != nil {
		w.t.Errorf("Unlock: %v", err)
	}
}

func (w *witness) enter(held *locker.Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside != "" {
		w.t.Errorf("two holders at once: %s and %d", w.inside, held.Token())
	}
	if w.last != nil && held.Token() <= w.last.Token() {
		w.t.Errorf("token %d was granted after %d", held.Token(), w.last.Token())
	}
	w.inside = held.Token().String()
	w.last = held
	w.visits++
}

func (w *witness) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside = ""
}
