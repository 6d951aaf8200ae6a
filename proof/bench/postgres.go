package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
	"github.com/lockstile/locker/proof/matrix"
)

// poolSize is how many connections a client may have. The server allows them
// for eight clients.
const poolSize = 100

// joining is what a connection costs: the server starts a process for each. Some locks
// also write to the disk for each request that they refuse.
const joining = 10 * time.Millisecond

// pgServer is the address of a PostgreSQL.
type pgServer string

// startPostgres starts one that counts statements.
func startPostgres(lab *matrix.Lab, store string, names int, at func([]string, counter) []subject) *running {
	srv := testserver.Postgres(lab, "fsync=on", "max_connections=1000",
		"shared_preload_libraries=pg_stat_statements", "pg_stat_statements.max=10000")
	pool, err := pgServer(srv.Addr()).connect()
	if err == nil {
		_, err = pool.Exec(context.Background(), `CREATE EXTENSION pg_stat_statements;
			CREATE TABLE bare (name text PRIMARY KEY, holder text)`)
	}
	if err != nil {
		lab.Fatalf("preparing PostgreSQL: %w", err)
	}
	lab.Cleanup(pool.Close)
	addrs := []string{srv.Addr()}
	requests := func(...string) func() int64 { return func() int64 { return statements(lab, pool) } }
	return &running{store: store, addrs: addrs, names: names, joining: joining, subjects: at(addrs, requests)}
}

func (s pgServer) connect() (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(testserver.PostgresURL(string(s), "postgres"))
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = poolSize
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

// statements counts all statements that clients have sent, not those inside functions.
func statements(lab *matrix.Lab, pool *pgxpool.Pool) int64 {
	var n int64
	if err := pool.QueryRow(context.Background(), "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements").Scan(&n); err != nil {
		lab.Fatalf("counting statements: %w", err)
	}
	return n
}

// ours opens one of our two kinds of Locker.
func (s pgServer) ours(make func(*pgxpool.Pool) (pgLocker, error)) func() (client, error) {
	return func() (client, error) {
		pool, err := s.connect()
		if err != nil {
			return nil, err
		}
		l, err := make(pool)
		if err == nil {
			err = l.EnsureSchema(context.Background())
		}
		if err != nil {
			return nil, err
		}
		return lockstile{l, nil, func() { _ = l.Close(); pool.Close() }}, nil
	}
}

type pgLocker interface {
	locker.Locker
	EnsureSchema(ctx context.Context) error
	Close() error
}

func startPostgresRows(lab *matrix.Lab) *running {
	return startPostgres(lab, "postgres-rows", 50_000, rowSubjects)
}

func startPostgresSessions(lab *matrix.Lab) *running {
	return startPostgres(lab, "postgres-sessions", 10_000, sessionSubjects)
}

// rowSubjects are the subjects whose locks are rows.
func rowSubjects(addrs []string, requests counter) []subject {
	s, count := pgServer(addrs[0]), requests()
	rows := func(pool *pgxpool.Pool) (pgLocker, error) { return postgres.New(pool, postgres.Options{}) }
	return []subject{
		{name: "bare updates of a row, the first waits for the disk", kind: floor, requests: count, open: s.bareRows},
		{name: "lockstile/postgres", kind: ours, scales: true, requests: count, open: s.ours(rows)},
		{name: "pglock, no heartbeats", kind: peer, requests: count, open: s.pglock},
	}
}

// sessionSubjects are the subjects whose locks end with their connection.
func sessionSubjects(addrs []string, requests counter) []subject {
	s, count := pgServer(addrs[0]), requests()
	sessions := func(pool *pgxpool.Pool) (pgLocker, error) { return postgres.NewSession(pool, postgres.Options{}) }
	return []subject{
		{name: "bare advisory lock and unlock", kind: floor, requests: count, open: s.advisory},
		{name: "lockstile/postgres, session", kind: ours, requests: count, open: s.ours(sessions)},
		{name: "advisory lock, a connection per waiter", kind: peer, requests: count, open: s.advisory},
	}
}

type bareRows struct{ pool *pgxpool.Pool }

type bareRow struct {
	pool *pgxpool.Pool
	name string
}

func (s pgServer) bareRows() (client, error) {
	pool, err := s.connect()
	if err != nil {
		return nil, err
	}
	for i := range 64 { // as many names as goroutines
		if _, err := pool.Exec(context.Background(), "INSERT INTO bare VALUES ($1) ON CONFLICT DO NOTHING", nameOf(i)); err != nil {
			return nil, err
		}
	}
	return bareRows{pool}, nil
}

// A lock has to be on disk before it counts, but nobody has to wait until its release is.
// So the second update commits without waiting for the disk, as our releases do.
const (
	bareUpdate  = "UPDATE bare SET holder = $2 WHERE name = $1"
	bareRelease = bareUpdate + " AND set_config('synchronous_commit', 'off', true) = 'off'"
)

func (b bareRows) Lock(ctx context.Context, name string) (held, error) {
	_, err := b.pool.Exec(ctx, bareUpdate, name, "holder")
	return bareRow{b.pool, name}, err
}

func (b bareRows) Close() { b.pool.Close() }

func (r bareRow) Unlock(ctx context.Context) error {
	_, err := r.pool.Exec(ctx, bareRelease, r.name, "")
	return err
}

// advisory is a lock of the server's own. Uncontended it is the floor. A waiter occupies a
// connection.
type advisory struct{ pool *pgxpool.Pool }

type advisoryHeld struct {
	conn *pgxpool.Conn
	name string
}

func (s pgServer) advisory() (client, error) {
	pool, err := s.connect()
	return advisory{pool}, err
}

func (a advisory) Lock(ctx context.Context, name string) (held, error) {
	conn, err := a.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
		conn.Release() // pgx has closed it, if ctx has ended
		return nil, err
	}
	return advisoryHeld{conn, name}, nil
}

func (a advisory) Close() { a.pool.Close() }

func (h advisoryHeld) Unlock(ctx context.Context) error {
	defer h.conn.Release()
	var held bool
	err := h.conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", h.name).Scan(&held)
	if err == nil && !held {
		err = errors.New("the advisory lock was not held")
	}
	return err
}

type pglockClient struct {
	db    *sql.DB
	locks *pglock.Client
}

type pglockHeld struct {
	locks *pglock.Client
	lock  *pglock.Lock
}

func (s pgServer) pglock() (client, error) {
	pool, err := s.connect()
	if err != nil {
		return nil, err
	}
	cfg := pool.Config().ConnConfig
	pool.Close()
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	// Unsafe means another database driver than pglock's own. Without the option its
	// heartbeats would start at once and give the lock another number: a release that
	// interrupts one does not find the lock, which stays until its lease ends.
	locks, err := pglock.UnsafeNew(db, pglock.WithHeartbeatFrequency(0))
	if err == nil {
		err = locks.TryCreateTable()
	}
	return pglockClient{db, locks}, err
}

func (c pglockClient) Lock(ctx context.Context, name string) (held, error) {
	lock, err := c.locks.AcquireContext(ctx, name)
	return pglockHeld{c.locks, lock}, err
}

func (c pglockClient) Close() { _ = c.db.Close() }

func (h pglockHeld) Unlock(ctx context.Context) error { return h.locks.ReleaseContext(ctx, h.lock) }
