package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// lazy makes a server put on disk what a commit waits for, and nothing else.
var lazy = []string{"wal_writer_delay=10000", "wal_writer_flush_after=1GB"}

// draw is a token for whoever asks in a statement of its own, as locks do.
const draw = `SELECT lockstile_draw(true)`

// Goal: session locks, and tokens in general, do not wait for the disk. Method:
// what was written before a lock is on disk after it, if that waited for anything.
func TestSessionLocksDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t, lazy...).URL("postgres")
	a, b := newSession(t, url), newSession(t, url)
	admin := connect(t, url)
	waits := map[string]int{}
	const n = 100
	count := func(what string, use func()) {
		for range n {
			start := query[string](t, admin, `SELECT pg_current_wal_insert_lsn()::text`)
			use()
			if query[bool](t, admin, `SELECT pg_current_wal_flush_lsn() > $1::pg_lsn`, start) {
				waits[what]++
			}
		}
	}
	count("lock and unlock", func() { unlock(t, lock(t, a, "a")) })
	count("hand-over to a goroutine", func() { handOver(t, a, a) })
	count("hand-over to a process", func() { handOver(t, a, b) })
	count("lock in a transaction", func() { lockTx(t, admin, "a") })
	for what, times := range waits {
		if times > n/20 { // the blocks of tokens, and what the server has to do for itself
			t.Errorf("%s: %d of %d waited for the disk", what, times, n)
		}
	}
	leases := newLocker(t, url, postgres.Options{})
	clear(waits)
	count("leases", func() { unlock(t, lock(t, leases, "a")) })
	if waits["leases"] != n {
		t.Errorf("%d of %d leases are seen to wait for the disk: the test tests nothing", waits["leases"], n)
	}
}

// handOver gives a lock from one Locker to another that waits for it.
func handOver(tb testing.TB, from, to locker.Locker) {
	tb.Helper()
	held := lock(tb, from, "a")
	ctx := &watched{Context: soon(tb), asked: make(chan struct{})}
	got := make(chan error, 1)
	go func() {
		second, err := to.Lock(ctx, "a")
		if err == nil {
			err = second.Unlock(context.Background())
		}
		got <- err
	}()
	<-ctx.asked
	unlock(tb, held)
	if err := <-got; err != nil {
		tb.Fatal(err)
	}
}

// crash kills the server, starts it again, and checks that the next token is
// above those that were drawn.
func crash(t *testing.T, server *testserver.PostgresServer, drawn ...int64) {
	t.Helper()
	server.Kill()
	server.Start()
	admin := connect(t, server.URL("postgres"))
	for range 3 {
		next := query[int64](t, admin, draw)
		for _, token := range drawn {
			if next <= token {
				t.Errorf("token %d follows %d after a crash", next, token)
			}
		}
		drawn = append(drawn, next)
	}
}

// begun starts a transaction, and ends it with the test.
func begun(t *testing.T, url string) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(soon(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// ask is query in a transaction.
func ask[T any](t *testing.T, tx pgx.Tx, sql string, args ...any) (result T) {
	t.Helper()
	if err := tx.QueryRow(soon(t), sql, args...).Scan(&result); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return result
}

// Goal: nobody uses a block before its number is on disk.
//
// Interleaving: a transaction has drawn a number and goes on. What it drew is not
// on disk, and the server has logged the numbers to come together with it, so that
// another's draw leaves nothing in the log.
func TestBlockOfAnUnfinishedTransactionIsNotUsed(t *testing.T) {
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres")
	newSession(t, url)
	admin := connect(t, url)
	tx := begun(t, url)
	if _, err := postgres.LockTx(soon(t), tx, "a"); err != nil {
		t.Fatal(err)
	}
	crash(t, server, query[int64](t, admin, draw), query[int64](t, admin, draw), query[int64](t, admin, draw))
}

// Goal: nor does the transaction that sets it aside raise the sequence for others.
func TestBlockIsNotUsedBeforeItsTransactionHasCommitted(t *testing.T) {
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres")
	newSession(t, url)
	tx := begun(t, url)
	for range 2 {
		ask[int64](t, tx, draw)
	}
	impatient := connect(t, url+"&lock_timeout=100") // or it waits for the transaction
	crash(t, server, query[int64](t, impatient, draw))
}

// Goal: a block that was set aside before a crash is not used after it.
//
// Interleaving: the number of the block is the last of those that the server has
// logged together, and so the one that the sequence comes back with.
func TestBlockOfBeforeACrashIsNotUsedAgain(t *testing.T) {
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres")
	newSession(t, url)
	admin := connect(t, url)
	query[int64](t, admin, draw)
	for query[int64](t, admin, `SELECT log_cnt FROM lockstile_token`) > 1 {
		query[int64](t, admin, `SELECT nextval('lockstile_token')`)
	}
	first := query[int64](t, admin, draw)
	second := query[int64](t, admin, draw)
	if left := query[int64](t, admin, `SELECT log_cnt FROM lockstile_token`); left != 0 || second != first+1 {
		t.Fatalf("%d numbers are left in the log, and token %d follows %d: the test tests nothing", left, second, first)
	}
	crash(t, server, second)
}

// Goal: a clean restart, which keeps what is not logged, sends no token back.
func TestTokensIncreaseOverACleanRestart(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	newSession(t, server.URL("postgres"))
	admin := connect(t, server.URL("postgres"))
	var drawn []int64
	for range 5 {
		drawn = append(drawn, query[int64](t, admin, draw))
	}
	server.Stop()
	server.Start()
	next := query[int64](t, connect(t, server.URL("postgres")), draw)
	if next != drawn[4]+1 {
		t.Errorf("token %d follows %d", next, drawn[4])
	}
}

// Goal: a number that somebody has drawn by itself ends the use of the blocks
// before, and the end of a block that of the block.
func TestTokensIncreaseFromBlockToBlock(t *testing.T) {
	url := database(t)
	newSession(t, url)
	admin := connect(t, url)
	last := int64(0)
	drawSome := func(after string, n int) {
		t.Helper()
		for range n {
			token := query[int64](t, admin, draw)
			if token <= last {
				t.Errorf("%s: token %d follows %d", after, token, last)
			}
			last = token
		}
	}
	drawSome("the beginning", 3)
	for range 3 {
		last = query[int64](t, admin, `SELECT nextval('lockstile_token') * 1048576`)
		drawSome("a number", 3)
	}
	for _, place := range []int64{1<<19 - 3, 1<<19 - 1, 1<<19 + 5, 1<<20 - 1} {
		block := last >> 20 << 20
		last = query[int64](t, admin, `SELECT setval('lockstile_quick', $1)`, block+place)
		drawSome("the end of a block", 6)
	}
}

// Goal: those who come while a block is being set aside wait for it, and do not
// draw a number each, which would make it useless. Method: the one who sets it
// aside is a transaction by hand.
func TestThoseWhoComeWhileABlockIsSetAsideWaitForIt(t *testing.T) {
	url := database(t)
	newSession(t, url)
	admin := connect(t, url)
	tx := begun(t, url)
	first := ask[int64](t, tx, draw)
	got := make(chan int64, 2)
	for _, sql := range []string{draw, `SELECT lockstile_draw(false)`} {
		go func() { got <- query[int64](t, admin, sql) }()
	}
	waits(t, admin, 2, got)
	if err := tx.Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if token := <-got; token>>20 != first>>20 {
			t.Errorf("token %d is not in the block of %d", token, first)
		}
	}
}

// Goal: whoever waits for a block holds nothing that the one who sets it aside may
// have to wait for. Method: a transaction by hand is the latter, and a lease that
// has ended is what both want.
func TestDrawWaitsBeforeAnyRowIsLocked(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	held := lock(t, l, "a", locker.WithTTL(long))
	exec(t, admin, `UPDATE lockstile_lock SET expires = clock_timestamp()`)
	exec(t, admin, `SELECT nextval('lockstile_token')`) // no block is in use
	tx := begun(t, url)
	ask[bool](t, tx, `SELECT pg_try_advisory_xact_lock(1819239277, 0)`)
	other := newLocker(t, url, postgres.Options{})
	got := make(chan error, 1)
	go func() {
		_, err := other.TryLock(soon(t), "a")
		got <- err
	}()
	waits(t, admin, 1, got)
	ask[string](t, tx, `SELECT name FROM lockstile_lock WHERE name = 'a' FOR UPDATE NOWAIT`)
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	_ = held.Unlock(context.Background()) // it is another's now
}

// Goal: a row that somebody keeps stops its own name alone. Method: whoever sets a
// block aside wants the row, and is a connection that waits as long as it takes.
func TestRowThatIsKeptStopsNoOtherName(t *testing.T) {
	url := database(t)
	lock(t, newLocker(t, url, postgres.Options{}), "kept", locker.WithTTL(long))
	admin := connect(t, url)
	exec(t, admin, `SELECT nextval('lockstile_token')`) // no block is in use
	keeper := begun(t, url)
	ask[string](t, keeper, `SELECT name FROM lockstile_lock WHERE name = 'kept' FOR UPDATE`)
	got := make(chan error, 1)
	go func() {
		_, err := admin.Exec(context.Background(), `SELECT lockstile_lease_acquire('kept', 'v', 1000, '', false, '', 0, 0)`)
		got <- err
	}()
	eventually(t, func() string {
		if !query[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database())`) {
			return "nobody waits for the row"
		}
		return ""
	})
	if _, err := postgres.LockTx(soon(t), begun(t, url), "other"); err != nil {
		t.Error(err)
	}
	if err := keeper.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	<-got // granted or not: the row may have been kept for longer than it waits
}

// Goal: two who raise at once cannot set the sequence back.
func TestOnlyOneAtATimeRaisesTheSequence(t *testing.T) {
	url := database(t)
	newSession(t, url)
	admin := connect(t, url)
	query[int64](t, admin, draw)
	tx := begun(t, url)
	ask[bool](t, tx, `SELECT pg_try_advisory_xact_lock(1819239277, 1)`)
	got := make(chan int64, 1)
	go func() { got <- query[int64](t, admin, draw) }()
	waits(t, connect(t, url), 1, got)
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	if token := <-got; token&(1<<20-1) == 0 {
		t.Errorf("token %d is another block's", token)
	}
}

// waits returns when n connections wait for an advisory lock. None may have got
// what it asked for.
func waits[T any](t *testing.T, admin *pgxpool.Pool, n int, got <-chan T) {
	t.Helper()
	eventually(t, func() string {
		select {
		case early := <-got:
			t.Fatalf("somebody did not wait: %v", early)
		default:
		}
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) < n {
			return "nobody waits"
		}
		return ""
	})
}

// Goal: where there is a synchronous standby, no lock is granted without it: it may
// have taken over, and grant the same lock with greater tokens. And what it takes
// over is enough to go on from.
func TestSessionLocksWaitForTheSynchronousStandby(t *testing.T) {
	primary := testserver.Postgres(t, lazy...)
	l := newSession(t, primary.URL("postgres"))
	admin := connect(t, primary.URL("postgres"))
	standby := testserver.PostgresStandby(t, primary, primary.Addr(), nil)
	exec(t, admin, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	exec(t, admin, `SELECT pg_reload_conf()`)
	eventually(t, func() string {
		if query[int](t, admin, `SELECT count(*)::int FROM pg_stat_replication WHERE sync_state = 'sync'`) == 0 {
			return "the standby is not synchronous"
		}
		return ""
	})
	var last fencing.Token
	for range 5 {
		held := lock(t, l, "a")
		last = held.Token()
		unlock(t, held)
	}
	standby.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := l.TryLock(ctx, "b"); err == nil {
		t.Error("a lock was granted without the standby")
	}
	standby.Start()
	primary.Kill()
	standby.Promote()
	if next := lock(t, newSession(t, standby.URL("postgres")), "a"); next.Token() <= last {
		t.Errorf("token %d follows %d on the promoted standby", next.Token(), last)
	}
}
