package postgres

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// answerTime is how long a statement may take. None of them waits for a lock
	// that somebody holds.
	answerTime = 10 * time.Second

	// tries bounds how often a statement is sent over new connections that break.
	tries = 4
)

// poolRunner sends statements over the connections of a pool.
type poolRunner struct {
	pool     *pgxpool.Pool
	mode     pgx.QueryExecMode
	prepares bool // the pool's settings allow prepared statements
}

func newPoolRunner(pool *pgxpool.Pool) *poolRunner {
	configured := pool.Config().ConnConfig.DefaultQueryExecMode
	return &poolRunner{
		pool:     pool,
		mode:     execMode(configured),
		prepares: configured == pgx.QueryExecModeCacheStatement,
	}
}

// execMode is how statements are sent that are not prepared: in one round trip, with
// their parameters and without a name, so that a pooler need remember nothing between
// transactions. A pool that is set to the simple protocol keeps it.
func execMode(configured pgx.QueryExecMode) pgx.QueryExecMode {
	if configured == pgx.QueryExecModeSimpleProtocol {
		return configured
	}
	return pgx.QueryExecModeExec
}

// The statements that getReady prepares. Each argument has its type: a stranger's function that
// takes it as it comes would be called in place of ours (see schemaBegin).
const (
	sqlAcquire = `SELECT * FROM lockstile_acquire_` + schemaVersion + `($1::pg_catalog.text, $2::pg_catalog.text, $3::bigint, $4::pg_catalog.text,
		$5::boolean, $6::pg_catalog.text, $7::bigint, $8::bigint, $9::boolean, $10::integer)`
	sqlRelease = `SELECT lockstile_release_` + schemaVersion + `($1::pg_catalog.text, $2::pg_catalog.text, $3::boolean, $4::bigint, $5::bigint, $6::boolean)`
)

// getReady prepares statements on a connection of the pool that is used for the third
// time, if it leads to the server directly. That spares the server half of its work, and
// costs a program that locks once nothing. Nothing depends on it: a statement that could
// not be prepared is sent in full.
func (p *poolRunner) getReady(ctx context.Context, conn *pgx.Conn) {
	const key = "github.com/lockstile/locker/postgres"
	if !p.prepares {
		return
	}
	memory := conn.PgConn().CustomData()
	uses, _ := memory[key].(int)
	if memory[key] = uses + 1; uses != 2 || checkDirect(ctx, conn, p.mode) != nil {
		return
	}
	for _, sql := range []string{sqlAcquire, sqlRelease} {
		if _, err := conn.Prepare(ctx, sql, sql); err != nil {
			return
		}
	}
}

// run sends a statement that returns one row, until its answer arrives or ctx ends,
// and reports whether an earlier try may have been carried out as well. A release is sent
// before its connection is prepared: it has to free the lock even if no answer ever comes.
func (p *poolRunner) run(ctx context.Context, sql string, args []any, dest ...any) (repeated bool, err error) {
	return p.repeat(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		err := scan(ctx, conn, p.mode, sql, args, dest)
		if sql == sqlRelease && err == nil {
			p.getReady(ctx, conn)
		}
		return err
	})
}

// repeat calls f with a connection, and with another if that one was broken, for no longer than an answer may take. It reports
// whether an earlier call may have been carried out as well as the last, and says what to do about an error. A server that was
// restarted may have left any number of broken ones in the pool.
func (p *poolRunner) repeat(ctx context.Context, f func(context.Context, *pgx.Conn) error) (repeated bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	maybeDone := false
	for try, most := 0, tries; try < most; try++ {
		repeated = maybeDone
		var conn *pgxpool.Conn
		if conn, err = p.pool.Acquire(ctx); err != nil {
			err = &notSent{p.withPool(ctx, err)}
			break
		}
		err = p.lend(ctx, conn, f)
		if !broken(ctx, err) {
			break
		}
		maybeDone = maybeDone || unsure(err)
		if try == 0 {
			most += int(p.pool.Stat().IdleConns())
		}
	}
	return repeated, withCause(ctx, p.explain(ctx, err))
}

// withPool says so if no connection came free in time: then the server has not been asked.
func (p *poolRunner) withPool(ctx context.Context, err error) error {
	if s := p.pool.Stat(); ctx.Err() != nil && s.AcquiredConns() == s.MaxConns() {
		return fmt.Errorf("all %d connections of the pool are in use: raise its MaxConns (pool_max_conns in a URL), or give locks a pool of their own: %w", s.MaxConns(), err)
	}
	return err
}

// lend gives the connection back whatever happens: a hook of the caller's may panic.
func (p *poolRunner) lend(ctx context.Context, conn *pgxpool.Conn, f func(context.Context, *pgx.Conn) error) error {
	defer conn.Release()
	if conn.Conn().PgConn().TxStatus() != 'I' {
		return &notSent{errInTransaction}
	}
	err := f(ctx, conn.Conn())
	if err == nil && ctx.Err() != nil {
		return errCancelled
	}
	if broken(ctx, err) { // not for the next user
		hangUp(conn.Conn())
	}
	return err
}

// errCancelled means that ctx ended before the answer came. The pool may be set to send a
// cancel request then, and a server that waits for its standby answers that as if the
// standby had what was written.
var errCancelled = errors.New("the statement may have been cancelled")

var errSilent = fmt.Errorf("no answer within %v", answerTime)

// withCause adds why ctx ended, if it has. At its deadline the network may fail a moment
// before ctx ends.
func withCause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if end, ok := ctx.Deadline(); cause == nil && ok && !time.Now().Before(end) {
		<-ctx.Done()
		cause = context.Cause(ctx)
	}
	if cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func scan(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode, sql string, args, dest []any) error {
	return conn.QueryRow(ctx, sql, append([]any{mode}, args...)...).Scan(dest...)
}

// notSent is an error that came before anything was sent.
type notSent struct{ err error }

func (e *notSent) Error() string     { return e.err.Error() }
func (e *notSent) Unwrap() error     { return e.err }
func (e *notSent) SafeToRetry() bool { return true }

func random() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails since Go 1.24: it crashes instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}
