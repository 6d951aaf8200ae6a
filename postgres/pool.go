package postgres

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// answerTime is how long a statement may take: none waits for a lock that
	// somebody holds.
	answerTime = 10 * time.Second

	// tries bounds how often a statement is sent when its connection breaks.
	tries = 4
)

// poolRunner sends statements over the connections of a pool.
type poolRunner struct {
	pool     *pgxpool.Pool
	mode     pgx.QueryExecMode
	prepares bool        // as far as the pool's settings go
	standby  atomic.Bool // a synchronous standby was seen configured
}

func newPoolRunner(pool *pgxpool.Pool) *poolRunner {
	configured := pool.Config().ConnConfig.DefaultQueryExecMode
	return &poolRunner{
		pool:     pool,
		mode:     execMode(configured),
		prepares: configured == pgx.QueryExecModeCacheStatement,
	}
}

// execMode is how statements are sent that are not prepared. Parameters travel
// with the statement, which has no name: that is one round trip on any connection,
// and needs nothing that a pooler would have to remember between transactions. A
// pool that is set to the simple protocol has a reason.
func execMode(configured pgx.QueryExecMode) pgx.QueryExecMode {
	if configured == pgx.QueryExecModeSimpleProtocol {
		return configured
	}
	return pgx.QueryExecModeExec
}

// The statements that are prepared on connections which are used more than once.
const (
	sqlAcquire = `SELECT * FROM lockstile_acquire_` + schemaVersion + `($1, $2, $3, $4, $5, $6, $7, $8)`
	sqlRelease = `SELECT lockstile_release_` + schemaVersion + `($1, $2, $3)`
)

// getReady prepares a connection of the pool when it is used for the third time,
// if it leads to the server directly: a program that locks once pays nothing. That
// spares the server half of its work. Nothing depends on it: a statement that could
// not be prepared is sent in full.
func (p *poolRunner) getReady(ctx context.Context, conn *pgx.Conn) {
	const key = "github.com/lockstile/locker/postgres"
	if !p.prepares {
		return
	}
	memory := conn.PgConn().CustomData()
	uses, _ := memory[key].(int)
	if memory[key] = uses + 1; uses != 2 || introduced(ctx, conn, p.mode) != nil {
		return
	}
	for _, sql := range []string{sqlAcquire, sqlRelease} {
		if _, err := conn.Prepare(ctx, sql, sql); err != nil {
			return
		}
	}
}

// run sends a statement that answers one row, until its answer arrives or ctx ends,
// and reports whether an earlier try may have been carried out as well. A release comes
// before the preparation, for it has to free the lock even if no answer ever comes.
func (p *poolRunner) run(ctx context.Context, sql string, args []any, dest ...any) (repeated bool, err error) {
	return p.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		err := scan(ctx, conn, p.mode, sql, args, dest)
		if sql == sqlRelease && err == nil {
			p.getReady(ctx, conn)
		}
		return err
	})
}

// repeat calls send with a connection, and with another if that was broken, and
// reports whether an earlier call may have been carried out as well as the last.
func (p *poolRunner) repeat(ctx context.Context, send func(context.Context, *pgx.Conn) error) (repeated bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	maybeDone := false
	for range tries {
		repeated = maybeDone
		var conn *pgxpool.Conn
		if conn, err = p.pool.Acquire(ctx); err != nil {
			err = &notSent{err}
			break
		}
		err = p.lend(ctx, conn, send)
		if !broken(ctx, err) {
			break
		}
		maybeDone = maybeDone || unsure(err)
	}
	return repeated, withCause(ctx, p.explain(ctx, err))
}

// lend gives the connection back whatever happens: a hook of the caller's may panic.
func (p *poolRunner) lend(ctx context.Context, conn *pgxpool.Conn, send func(context.Context, *pgx.Conn) error) error {
	defer conn.Release()
	err := send(ctx, conn.Conn())
	if broken(ctx, err) { // or the server has ended it, or forgotten what it had prepared
		hangUp(conn.Conn())
	}
	return err
}

// checkStandby looks once whether the server is what SyncStandby says.
func (p *poolRunner) checkStandby(ctx context.Context, opts Options) error {
	if !opts.SyncStandby || p.standby.Load() {
		return nil
	}
	var names string
	_, err := p.run(ctx, `SELECT current_setting($1)`, []any{"synchronous_standby_names"}, &names)
	switch {
	case err != nil:
		return classify(err)
	case names == "":
		return errNoStandby
	}
	p.standby.Store(true)
	return nil
}

var errNoStandby = errors.New("SyncStandby is set, but the server has no synchronous_standby_names")

// errSilent says that the server did not answer.
var errSilent = fmt.Errorf("no answer within %v", answerTime)

// withCause says why ctx ended, where that is why err happened. The network may
// keep the deadline a moment before ctx itself does.
func withCause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if end, ok := ctx.Deadline(); cause == nil && ok && !time.Now().Before(end) {
		<-ctx.Done() // due now
		cause = context.Cause(ctx)
	}
	if cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// scan runs the statement and reads its row; a single nil stands for a result
// that does not matter.
func scan(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode, sql string, args, dest []any) error {
	return conn.QueryRow(ctx, sql, append([]any{mode}, args...)...).Scan(dest...)
}

// notSent is an error before anything was sent.
type notSent struct{ err error }

func (e *notSent) Error() string     { return e.err.Error() }
func (e *notSent) Unwrap() error     { return e.err }
func (e *notSent) SafeToRetry() bool { return true }

// dial opens a connection of our own with the pool's settings and hooks. It does not
// come out of the pool: one that is kept for good would be missing there, and keep
// the pool from closing.
func dial(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	config.ConnConfig.OnNotification = nil // it would keep them from us
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
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil || config.AfterConnect == nil {
		return conn, err
	}
	if err := config.AfterConnect(ctx, conn); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// hangUp closes a connection without waiting for a server that is gone.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// errPooled means that the server's process is not the one that the connection
// was introduced to: something in between shares connections out.
var errPooled = errors.New("a connection pooler is between this process and the server")

// introduced returns errPooled unless conn leads to the server directly.
func introduced(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode) error {
	var pid uint32
	if err := scan(ctx, conn, mode, `SELECT pg_backend_pid()::bigint WHERE $1::text <> ''`, []any{"pid"}, []any{&pid}); err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		return errPooled
	}
	return nil
}

func random() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails since Go 1.24: it crashes instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}
