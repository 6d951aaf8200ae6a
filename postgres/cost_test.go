package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
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
				JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database() AND s.query LIKE '%lockstile_%'
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
func TestServerPlansNothingForALockOrAHandOverOnAConnectionItKnows(t *testing.T) {
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
			AND (s.query LIKE 'INSERT INTO lockstile%' OR s.query LIKE 'UPDATE lockstile%' OR s.query LIKE 'DELETE FROM lockstile%')`)
	}
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		open(t, url) // the schema
		pool := connect(t, url+"&pool_max_conns=1")
		l := onPool(t, t.Name(), pool)
		warmUp(t, l, pool)
		for range 10 {
			handOverOnce(t, l)
		}
		plans, calls := counted("plans"), counted("calls")
		for range 10 {
			handOverOnce(t, l)
		}
		if n := counted("calls") - calls; n != 30 {
			t.Errorf("the server counted %d statements inside of functions, of 10 locks, hand-overs and releases", n)
		}
		if n := counted("plans") - plans; n != 0 {
			t.Errorf("the server planned %d statements anew", n)
		}
	})
}

// handOverOnce takes a lock, hands it to a goroutine that waits, and gives it back.
func handOverOnce(t *testing.T, l locker.Locker) {
	t.Helper()
	held := lock(t, l, "a")
	var wait sync.WaitGroup
	wait.Go(func() {
		next, err := l.Lock(soon(t), "a")
		if err != nil {
			t.Errorf("Lock: %v", err)
		} else if err := next.Unlock(context.Background()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
	eventually(t, func() string {
		if postgres.InLine(l, "a") < 2 {
			return "nobody waits"
		}
		return ""
	})
	unlock(t, held)
	wait.Wait()
}

// Goal: held locks share their renewals. Method: wait until the server has
// extended the lease of every one of them, and count its statements.
func TestRenewalsOfManyLocksShareStatements(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	exec(t, admin, "CREATE EXTENSION pg_stat_statements")
	l := newLocker(t, url, postgres.Options{})
	const n = 300
	for i := range n {
		lock(t, l, fmt.Sprint(i), locker.WithTTL(3*time.Second))
	}
	last := query[time.Time](t, admin, `SELECT max(expires) FROM lockstile_lock`)
	eventually(t, func() string {
		left := query[int](t, admin, `SELECT count(*)::int FROM lockstile_lock WHERE expires <= $1`, last)
		if left > 0 {
			return fmt.Sprint(left, " locks were not renewed")
		}
		return ""
	})
	calls := query[int](t, admin, `SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE d.datname = current_database() AND s.query LIKE '%lockstile_renew(%' AND s.query NOT LIKE '%pg_stat%'`)
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
		if c := query[int](t, admin, sqlConnections) - mine; c > 5 {
			t.Errorf("%d connections", c)
		}
		if seen.visits != n {
			t.Errorf("%d of %d waiters got the lock", seen.visits, n)
		}
	})
}

const sqlConnections = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()`

// witness stands where the lock's holder works, and sees what the lock must
// never let happen.
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
