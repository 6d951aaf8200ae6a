package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker/driver"
)

// dial opens a connection of our own with the pool's settings and hooks, and what set adds, if it
// is not nil. It is not taken from the pool: there it would be missing for as long as we keep it, and the pool could not be
// closed. A pool that has this connection alone opens it, since that calls every hook as the application's pool does.
func dial(ctx context.Context, pool *pgxpool.Pool, set func(*pgconn.Config)) (*pgx.Conn, error) {
	config := pool.Config()
	hook := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if hook != nil {
			if err := hook(ctx, c); err != nil {
				return err
			}
		}
		c.OnNotification = nil // it would receive them in our place
		// The end of a wait for notifications must only end the wait. The other
		// handler that pgx has would cancel whatever the server does next.
		c.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
		}
		if set != nil {
			set(&c.Config)
		}
		return nil
	}
	own, err := newOwnPool(config)
	if err != nil {
		return nil, err
	}
	defer func() { go own.Close() }() // if ctx has ended, it waits for a connection that is being opened
	lent, err := own.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := lent.Hijack()
	if conn.PgConn().TxStatus() != 'I' {
		hangUp(conn)
		return nil, errInTransaction
	}
	return conn, nil
}

// errInTransaction refuses a connection on which nobody would commit what we do.
var errInTransaction = driver.Refused(errors.New("the connection is inside a transaction, which a hook of the pool's has begun"))

// hangUp closes a connection without waiting for a server that is gone.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// errPooled means that the process which answers is not the one that the server named
// when the connection was opened: something in between shares connections.
var errPooled = errors.New("a connection pooler is between this process and the server")

// checkDirect returns errPooled unless conn leads to the server directly.
func checkDirect(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode) error {
	var pid uint32
	if err := scan(ctx, conn, mode, `SELECT pg_catalog.pg_backend_pid()::bigint WHERE $1::pg_catalog.text IS NOT NULL`, []any{"pid"}, []any{&pid}); err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		return errPooled
	}
	return nil
}
