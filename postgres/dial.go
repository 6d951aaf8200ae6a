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
// is not nil. It is not taken from the pool: there it would be
// missing for as long as we keep it, and the pool could not be closed.
func dial(ctx context.Context, pool *pgxpool.Pool, set func(*pgconn.Config)) (*pgx.Conn, error) {
	config := pool.Config()
	config.ConnConfig.OnNotification = nil // it would receive them in our place
	// The end of a wait for notifications must only end the wait. The other
	// handler that pgx has would cancel whatever the server does next.
	config.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
	}
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	if set != nil {
		set(&config.ConnConfig.Config)
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() { // also if a hook panics
		if !kept {
			hangUp(conn)
		}
	}()
	if config.AfterConnect != nil {
		err = config.AfterConnect(ctx, conn)
	}
	if err == nil {
		err = handOut(ctx, config, conn)
	}
	if err == nil && conn.PgConn().TxStatus() != 'I' {
		err = errInTransaction
	}
	if err != nil {
		return nil, err
	}
	kept = true
	return conn, nil
}

// handOut calls the hook that a pool calls with each connection it hands out, which may
// set the role or the search path.
func handOut(ctx context.Context, config *pgxpool.Config, conn *pgx.Conn) error {
	good := true
	switch {
	case config.PrepareConn != nil:
		var err error
		if good, err = config.PrepareConn(ctx, conn); err != nil {
			return err
		}
	case config.BeforeAcquire != nil: //nolint:staticcheck // a pool calls it, too
		good = config.BeforeAcquire(ctx, conn) //nolint:staticcheck // the same
	}
	if !good {
		return errors.New("a hook of the pool's gives out no connection")
	}
	return nil
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
