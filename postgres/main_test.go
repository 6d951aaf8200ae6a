package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// patience is how long tests wait for what must happen.
const patience = 90 * time.Second

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range slices.Backward(atEnd) {
		end()
	}
	os.Exit(code)
}

var (
	sharedMutex  sync.Mutex
	sharedServer *testserver.PostgresServer
	atEnd        []func()
	databases    atomic.Int64
)

// forAll is a test whose servers outlive it.
type forAll struct{ testing.TB }

func (forAll) Cleanup(f func()) { atEnd = append(atEnd, f) }

// shared returns the server of all tests that do not break theirs.
func shared(tb testing.TB) *testserver.PostgresServer {
	tb.Helper()
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	if sharedServer == nil {
		sharedServer = testserver.Postgres(forAll{tb}, "shared_preload_libraries=pg_stat_statements")
	}
	return sharedServer
}

// database returns the URL of a new, empty database on the shared server.
func database(tb testing.TB) string {
	tb.Helper()
	s := shared(tb)
	return s.URL(newDatabase(tb, s, "ENCODING 'UTF8'"))
}

func newDatabase(tb testing.TB, s *testserver.PostgresServer, settings string) string {
	tb.Helper()
	name := fmt.Sprintf("test%d", databases.Add(1))
	exec(tb, connect(tb, s.URL("postgres")), "CREATE DATABASE "+name+" TEMPLATE template0 "+settings)
	return name
}

func connect(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	return poolWith(tb, url, func(*pgxpool.Config) {})
}

// poolWith is connect with settings that a URL cannot have.
func poolWith(tb testing.TB, url string, set func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	set(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

func exec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) (result T) {
	tb.Helper()
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&result); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return result
}

// kinds make a Locker on a pool of its own, as if it were another process.
var kinds = map[string]func(pool *pgxpool.Pool) (lockerUnderTest, error){
	"leases": func(pool *pgxpool.Pool) (lockerUnderTest, error) { return postgres.New(pool, postgres.Options{}) },
	"sessions": func(pool *pgxpool.Pool) (lockerUnderTest, error) {
		return postgres.NewSession(pool, postgres.Options{})
	},
}

type lockerUnderTest interface {
	locker.Locker
	locker.Inspector
	locker.Breaker
	EnsureSchema(context.Context) error
	Close() error
}

func newLocker(tb testing.TB, url string, opts postgres.Options) *postgres.Locker {
	tb.Helper()
	l, err := postgres.New(connect(tb, url), opts)
	return ready(tb, l, err)
}

func newSession(tb testing.TB, url string) *postgres.SessionLocker {
	tb.Helper()
	l, err := postgres.NewSession(connect(tb, url), postgres.Options{})
	return ready(tb, l, err)
}

// onPool makes a Locker of the kind that the name of the subtest ends with.
func onPool(tb testing.TB, test string, pool *pgxpool.Pool) lockerUnderTest {
	tb.Helper()
	l := opened(tb, test, pool)
	if err := l.EnsureSchema(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return l
}

// opened is onPool where the schema is there already.
func opened(tb testing.TB, test string, pool *pgxpool.Pool) lockerUnderTest {
	tb.Helper()
	l, err := kinds[test[strings.LastIndexByte(test, '/')+1:]](pool)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return l
}

func ready[L lockerUnderTest](tb testing.TB, l L, err error) L {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	if err := l.EnsureSchema(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return l
}

func forEachKind(t *testing.T, test func(t *testing.T, make func(tb testing.TB, url string) lockerUnderTest)) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			test(t, func(tb testing.TB, url string) lockerUnderTest { return onPool(tb, t.Name(), connect(tb, url)) })
		})
	}
}

func soon(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

func lock(tb testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	tb.Helper()
	lock, err := l.Lock(soon(tb), name, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return lock
}

// brief is lock with an end so near that a machine that stalls may use it up before
// the answer is read: then it asks again.
func brief(tb testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	tb.Helper()
	lock, err := briefly(soon(tb), l, name, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return lock
}

func briefly(ctx context.Context, l locker.Locker, name string, opts ...locker.Option) (*locker.Lock, error) {
	for {
		lock, err := l.Lock(ctx, name, opts...)
		if err == nil || ctx.Err() != nil || !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "it took so long to answer") {
			return lock, err
		}
	}
}

// passes takes a lock with a TTL that a machine that stalls may use up, and gives it back.
func passes(ctx context.Context, l locker.Locker, name string, opts ...locker.Option) error {
	lock, err := briefly(ctx, l, name, opts...)
	if err != nil {
		return err
	}
	if err = lock.Unlock(context.WithoutCancel(ctx)); errors.Is(err, locker.ErrLost) {
		return nil
	}
	return err
}

func unlock(tb testing.TB, lock *locker.Lock) {
	tb.Helper()
	if err := lock.Unlock(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// warmUp has l open its connection, get to know it and prepare its statements
// there, and returns when it no longer uses the pool, so that the next statement
// takes one round trip.
func warmUp(tb testing.TB, l locker.Locker, pool *pgxpool.Pool) {
	tb.Helper()
	unlock(tb, lock(tb, l, "warm up"))
	eventually(tb, func() string {
		uses := int64(1) // the schema
		if _, ok := l.(*postgres.Locker); ok {
			uses += 3 // what is done once, in the background, the lock and its release
		}
		if stat := pool.Stat(); stat.AcquireCount() < uses || stat.AcquiredConns() > 0 {
			return "the pool is in use"
		}
		return ""
	})
	for range 2 {
		held := lock(tb, l, "warm up")
		if err := held.Renew(soon(tb)); err != nil {
			tb.Fatal(err)
		}
		unlock(tb, held)
	}
}

// eventually waits until check returns "".
func eventually(tb testing.TB, check func() string) {
	tb.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatal(strings.TrimSpace(problem))
		}
	}
}
