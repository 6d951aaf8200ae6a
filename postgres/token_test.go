package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// lazy makes a server put on disk what a commit waits for, and nothing else.
var lazy = []string{"wal_writer_delay=10000", "wal_writer_flush_after=1GB"}

// onANewPage has what is logged next begin a segment of the log, and so a page. A page that is full is written at once,
// and what is on it outlasts a crash. Where a page ends depends on how long the schema is.
func onANewPage(t *testing.T, url string) {
	t.Helper()
	exec(t, connect(t, url), `SELECT pg_switch_wal()`)
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

// Goal: no token wraps around, and none comes twice. At its end the sequence refuses, and
// an attempt that was refused holds nothing.
func TestSequenceThatIsUsedUpRefuses(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		l, admin := open(t, url), connect(t, url)
		exec(t, admin, `SELECT setval('lockstile_token', 9007199254740990)`)
		last := lock(t, l, "a")
		if want := fencing.Token(1<<63 - 1024); last.Token() != want {
			t.Errorf("the last 1,024 tokens begin with %d, not %d", last.Token(), want)
		}
		unlock(t, last)
		if _, err := l.TryLock(soon(t), "a"); err == nil || !strings.Contains(err.Error(), "lockstile_token") {
			t.Errorf("TryLock without tokens: %v", err)
		}
		if _, err := postgres.LockTx(soon(t), begun(t, url), "a"); err == nil || !strings.Contains(err.Error(), "lockstile_token") {
			t.Errorf("LockTx without tokens, of a lock that nobody has: %v", err)
		}
	})
}

// history is what was drawn for one name. Whoever draws has an advisory lock.
type history struct {
	mu      sync.Mutex
	newest  fencing.Token // drawn since the last crash
	durable fencing.Token // committed, and told
	commits int
}

// drawn notes a token and returns what is wrong with it, which counts only if the server
// still answers afterwards: a server that is being killed may free a lock before its
// holder has read the token, and the next one may draw and read first.
func (h *history) drawn(how string, token fencing.Token) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.newest
	h.newest = max(last, token)
	if token < last+1024 && last > 0 {
		return fmt.Errorf("%s: token %d follows %d", how, token, last)
	}
	return nil
}

func (h *history) committed(token fencing.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.durable = max(h.durable, token)
	h.commits++
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits
}

// Goal: the tokens of a name increase, over crashes of the server at any moment.
// Method: connections draw in transactions at once, for a few names, until the server
// is killed; those that were told of their commit count.
func TestTokensOfTransactionsIncreaseOverCrashes(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres") + careless
	newLocker(t, url, postgres.Options{})
	var names [3]history
	for round := range 6 {
		var wait sync.WaitGroup
		ctx, stop := context.WithCancel(soon(t))
		for worker := range 9 {
			wait.Go(func() { drawAll(ctx, t, url, round+worker, &names) })
		}
		enough := names[0].count() + 1 + 4*round // soon after the start, or later
		eventually(t, func() string {
			if n := names[0].count(); n < enough {
				return fmt.Sprintf("%d of %d draws were committed", n, enough)
			}
			return ""
		})
		server.Kill()
		stop()
		wait.Wait()
		for i := range names {
			names[i].newest = names[i].durable
		}
		server.Start()
	}
}

// drawAll draws in one way after the other until the server dies.
func drawAll(ctx context.Context, t *testing.T, url string, seed int, names *[3]history) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return // the server has died already
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for i := seed; err == nil; i++ {
		key := i / 3 % len(names)
		level := pgx.ReadCommitted
		if i%3 == 1 {
			level = pgx.RepeatableRead
		}
		err = drawInTx(ctx, t, conn, level, key, &names[key], i%3 != 2)
	}
	var reply *pgconn.PgError
	if errors.As(err, &reply) && reply.Code != "57P01" && reply.Code != "57P02" && reply.Code != "57P03" {
		t.Errorf("a draw: %v", err)
	}
}

// drawInTx draws with LockTx, in a transaction that has looked at the database
// before.
func drawInTx(ctx context.Context, t *testing.T, conn *pgx.Conn, level pgx.TxIsoLevel, key int, h *history, commits bool) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `SELECT FROM lockstile_mark`); err != nil {
		return err
	}
	token, err := postgres.LockTx(ctx, tx, fmt.Sprint(key))
	if err != nil {
		return err
	}
	wrong := h.drawn(fmt.Sprint("in a transaction ", level), token)
	end := tx.Rollback
	if commits {
		end = tx.Commit
	}
	if err := end(ctx); err != nil {
		return err
	}
	if wrong != nil {
		t.Error(wrong)
	}
	if commits {
		h.committed(token)
	}
	return nil
}

// Goal: after an upgrade by logical replication, which copies tables and no sequences, no token goes
// back. Method: one server follows another, which has granted a few locks; programs turn to it.
//
// Interleaving: none is needed. The sequence of the new server begins at 1, and a guard that has seen the
// old server's tokens refuses everybody from then on.
func TestNoTokenIsDrawnFromASequenceThatWasNotCopied(t *testing.T) {
	t.Parallel()
	before, after := testserver.Postgres(t, "wal_level=logical"), testserver.Postgres(t)
	l := newLocker(t, before.URL("postgres"), postgres.Options{})
	newLocker(t, after.URL("postgres"), postgres.Options{}) // the tables, as from pg_dump --schema-only
	var last fencing.Token
	for range 20 {
		held := lock(t, l, "a")
		last = held.Token()
		unlock(t, held)
	}
	host, port, err := net.SplitHostPort(before.Addr())
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, after.URL("postgres"))
	exec(t, connect(t, before.URL("postgres")), `CREATE PUBLICATION everything FOR ALL TABLES`)
	exec(t, admin, fmt.Sprintf(`CREATE SUBSCRIPTION upgrade CONNECTION 'host=%s port=%s user=postgres dbname=postgres' PUBLICATION everything`, host, port))
	eventually(t, func() string {
		if query[int64](t, admin, `SELECT coalesce(max(upto), 0) FROM lockstile_drawn`) == 0 {
			return "the new server has not got the old one's rows"
		}
		return ""
	})
	exec(t, admin, `ALTER SUBSCRIPTION upgrade DISABLE`) // the old server is away
	leases, sessions := opened(t, "a/leases", connect(t, after.URL("postgres"))), opened(t, "a/sessions", connect(t, after.URL("postgres")))
	ways := map[string]func() (uint64, error){
		"TryLock":              func() (uint64, error) { return tokenOf(leases.TryLock(soon(t), "a")) },
		"TryLock of a reader":  func() (uint64, error) { return tokenOf(leases.TryLock(soon(t), "r", locker.WithShared())) },
		"TryLock of a session": func() (uint64, error) { return tokenOf(sessions.TryLock(soon(t), "s")) },
		"LockTx":               func() (uint64, error) { return tokenOfTx(t, after.URL("postgres"), pgx.ReadCommitted) },
		"LockTx, serializable": func() (uint64, error) { return tokenOfTx(t, after.URL("postgres"), pgx.Serializable) },
	}
	for range 3 { // asking does not make it right
		for what, try := range ways {
			if _, err := try(); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "apply Schema again") {
				t.Errorf("%s with a sequence that was not copied: %v", what, err)
			}
		}
	}
	if err := leases.EnsureSchema(soon(t)); err != nil {
		t.Fatal(err)
	}
	for _, what := range slices.Sorted(maps.Keys(ways)) { // that of a serializable transaction first: it is refused from the first lease on
		if n, err := ways[what](); err != nil || n <= uint64(last) {
			t.Errorf("%s after the schema was applied: token %d after %d, %v", what, n, last, err)
		}
	}
}

func tokenOf(l *locker.Lock, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	return max(uint64(l.Token()), uint64(l.SharedToken())), l.Unlock(context.Background())
}

func tokenOfTx(t *testing.T, url string, level pgx.TxIsoLevel) (uint64, error) {
	tx, err := connect(t, url).BeginTx(soon(t), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	n, err := postgres.LockTx(soon(t), tx, "t")
	return uint64(n), err
}

// Goal: what an earlier version of the schema has noted nowhere is seen in the rows of its leases.
func TestSchemaLiftsTheSequenceAboveTheTokensOfLeases(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	exec(t, connect(t, url), `INSERT INTO lockstile_lease VALUES ('a', 'x', false, 5000 * 1024, 'somebody', now() + interval '1 hour')`)
	if err := l.EnsureSchema(soon(t)); err != nil {
		t.Fatal(err)
	}
	held := lock(t, l, "b")
	if held.Token() <= 5000*1024 {
		t.Errorf("token %d after %d", held.Token(), 5000*1024)
	}
	unlock(t, held)
	if err := l.EnsureSchema(soon(t)); err != nil {
		t.Fatal(err)
	}
	if next := lock(t, l, "b"); next.Token() != held.Token()+1024 {
		t.Errorf("token %d after %d: the sequence was lifted without need", next.Token(), held.Token())
	}
}

// Goal: how far the sequence has come is noted often enough, whoever draws, and noting it waits for
// nobody. Method: a transaction that has noted a number goes on.
//
// Interleaving: LockTx draws a number that is noted, and its transaction goes on for hours. One lock in
// 32 waits for its end, on the connection of all session locks, which are lost.
func TestNumbersThatWereDrawnAreNoted(t *testing.T) {
	t.Parallel()
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		admin, l := connect(t, url), open(t, url)
		for first := range 2 { // the note of such a transaction may also be the first
			for range 31 * first {
				unlock(t, lock(t, l, "a"))
			}
			tx := begun(t, url)
			if n, err := postgres.LockTx(soon(t), tx, "migration"); err != nil || n/1024%32 != 1 {
				t.Fatalf("the number %d is none that is noted: %v", n/1024, err)
			}
			if err := opened(t, t.Name(), connect(t, url)).EnsureSchema(soon(t)); err != nil {
				t.Fatal(err)
			}
			for range 70 {
				unlock(t, lock(t, l, "a"))
			}
			if err := opened(t, t.Name(), connect(t, url)).EnsureSchema(soon(t)); err != nil {
				t.Error(err)
			}
			if err := tx.Commit(soon(t)); err != nil {
				t.Fatal(err)
			}
			noted := query[int64](t, admin, `SELECT max(upto) FROM lockstile_drawn`)
			if drawn := query[int64](t, admin, `SELECT last_value FROM lockstile_token`); drawn-noted >= 32 {
				t.Errorf("%d is noted, and %d was drawn", noted, drawn)
			}
			for query[int64](t, admin, `SELECT last_value FROM lockstile_token`)%32 != 0 && first == 0 {
				exec(t, admin, `SELECT nextval('lockstile_token')`)
			}
			if first == 0 { // 31 more, and the next is noted
				exec(t, admin, `SELECT nextval('lockstile_token')`)
			}
		}
		if l, ok := l.(*postgres.Locker); ok {
			postgres.SweepDue(l)
			unlock(t, lock(t, l, "a"))
			eventually(t, func() string {
				if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_drawn`); n > 1 {
					return fmt.Sprintf("%d numbers stay noted", n)
				}
				return ""
			})
		}
	})
}

// Goal: a transaction that reads the database as it was notes its number too, but for a serializable one.
func TestLockTxNotesItsNumberAtEveryLevelButSerializable(t *testing.T) {
	url := database(t)
	newLocker(t, url, postgres.Options{})
	for _, c := range []struct {
		level pgx.TxIsoLevel
		notes int64
	}{{pgx.Serializable, 0}, {pgx.RepeatableRead, 33}, {pgx.ReadCommitted, 65}} {
		tx, err := connect(t, url).BeginTx(soon(t), pgx.TxOptions{IsoLevel: c.level})
		if err != nil {
			t.Fatal(err)
		}
		for range 32 {
			if _, err := postgres.LockTx(soon(t), tx, "a"); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(soon(t)); err != nil {
			t.Fatal(err)
		}
		if n := query[int64](t, connect(t, url), `SELECT coalesce(max(upto), 0) FROM lockstile_drawn`); n != c.notes {
			t.Errorf("%s: %d is noted, want %d", c.level, n, c.notes)
		}
	}
}
