package testbed

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/pgfence"
	"github.com/lockstile/locker/internal/simplelock"
	"github.com/lockstile/locker/postgres"
	"github.com/lockstile/locker/proof/matrix"
)

// register is a table that takes every write, from anybody: no key or row lock excludes two
// writers. A claim is a row with the IDs of the rows that its transaction saw.
const register = `CREATE TABLE IF NOT EXISTS matrix_register (
	id bigserial PRIMARY KEY, name text NOT NULL, pid int NOT NULL, token bigint NOT NULL, shared boolean NOT NULL, value int NOT NULL, saw bigint[])`

// inTransactions makes a Locker of [postgres.LockTx] and [postgres.LockTxShared], for holders
// that write in the transaction that has the lock. A reader notes in it that it has read. Lock begins it, Unlock commits it. A renewal is a
// statement, because here the server ends a transaction that is idle for a TTL. LockTx
// itself needs neither.
type inTransactions struct {
	pool  *pgxpool.Pool
	aside bool // writes go over other connections: wrong, on purpose

	mu   sync.Mutex
	held map[fencing.Token]*transaction // those that have ended stay
}

// transaction runs one statement at a time.
type transaction struct {
	mu sync.Mutex
	pgx.Tx
	shared bool
}

var (
	_ locker.Locker = (*inTransactions)(nil)
	_ matrix.Writer = (*inTransactions)(nil)
)

func newInTransactions(pool *pgxpool.Pool, aside bool) *inTransactions {
	return &inTransactions{pool: pool, aside: aside, held: make(map[fencing.Token]*transaction)}
}

// Guarantees implements [locker.Locker].
func (*inTransactions) Guarantees() locker.Guarantees {
	return locker.Guarantees{Fair: true, FreedBy: locker.FreedByTransaction, Shared: true}
}

// Lock implements [locker.Locker]. It waits in the server.
func (l *inTransactions) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.lock(ctx, "0", name, opts)
}

// TryLock implements [locker.Locker].
func (l *inTransactions) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.lock(ctx, "1ms", name, opts)
}

func (l *inTransactions) lock(ctx context.Context, patience, name string, opts []locker.Option) (*locker.Lock, error) {
	req, err := driver.NewRequest(nil, name, opts...)
	if err != nil {
		return nil, err
	}
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("testbed: lock %q: %w", name, err)
	}
	token, since, err := enter(ctx, tx, patience, req)
	if err != nil {
		_ = tx.Rollback(ctx) // if ctx has ended, the connection is closed
		return nil, fmt.Errorf("testbed: lock %q: %w", name, err)
	}
	mine := &transaction{Tx: tx, shared: req.Kind == locker.KindShared}
	l.mu.Lock()
	l.held[token] = mine
	l.mu.Unlock()
	return simplelock.New(simplelock.Lease{
		Request: req, Token: token, Since: since, Lasting: true,
		Renew: mine.renew, Release: mine.commit, Lost: mine.commitAnyhow,
	}), nil
}

// enter takes the lock and claims the register, as [locker.Do] does with a guard. The server's
// patience begins after the last statement, so the lock counts from before that one.
func enter(ctx context.Context, tx pgx.Tx, patience string, req *driver.Request) (token fencing.Token, since driver.Instant, err error) {
	idle := strconv.FormatInt(req.TTL.Milliseconds(), 10)
	_, err = tx.Exec(ctx, `SELECT set_config('idle_in_transaction_session_timeout', $1, true), set_config('lock_timeout', $2, true)`, idle, patience)
	if err != nil {
		return 0, 0, err
	}
	shared := req.Kind == locker.KindShared
	if token, err = lockTx(ctx, tx, req.Name, shared); err != nil {
		return 0, 0, err
	}
	since = driver.Now()
	_, err = tx.Exec(ctx, `INSERT INTO matrix_register (name, pid, token, shared, value, saw)
		VALUES ($1, $2, $3, $4, 0, ARRAY(SELECT id FROM matrix_register WHERE name = $1))`, req.Name, os.Getpid(), int64(token), shared)
	return token, since, err
}

func lockTx(ctx context.Context, tx pgx.Tx, name string, shared bool) (fencing.Token, error) {
	if !shared {
		return postgres.LockTx(ctx, tx, name)
	}
	number, err := postgres.LockTxShared(ctx, tx, name)
	return fencing.Token(number), err
}

// Write implements [matrix.Writer].
func (l *inTransactions) Write(ctx context.Context, name string, token fencing.Token, value int) error {
	l.mu.Lock()
	tx := l.held[token]
	l.mu.Unlock()
	const sql = `INSERT INTO matrix_register (name, pid, token, shared, value) VALUES ($1, $2, $3, $4, $5)`
	args := []any{name, os.Getpid(), int64(token), tx.shared, value}
	if l.aside {
		_, err := l.pool.Exec(ctx, sql, args...)
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

func (tx *transaction) commit(ctx context.Context) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.Commit(ctx)
}

// commitAnyhow commits after a loss, as a holder does that has not noticed it. That must do
// no harm.
func (tx *transaction) commitAnyhow() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = tx.commit(ctx) // the register says what came of it
}

// renew loses the lock if there is no answer, because pgx then closes the connection.
func (tx *transaction) renew(ctx context.Context) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if _, err := tx.Exec(ctx, `SELECT`); err != nil {
		return &locker.LostError{Reason: locker.ReasonSessionEnded, Cause: err}
	}
	return nil
}

func createRegister(url string) error {
	return askPostgres(url, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, register+";"+sets+";"+pgfence.Schema)
		return err
	})
}

// readRegister returns what was committed, and removes it. It waits for the lock, and so for
// every transaction that has it.
func readRegister(url, name string) (entries []matrix.Entry, err error) {
	err = askPostgres(url, func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := postgres.LockTx(ctx, tx, name); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `WITH all_rows AS (DELETE FROM matrix_register WHERE name = $1 RETURNING id, pid, token, shared, value, saw)
			SELECT id, pid, token, shared, saw IS NOT NULL, value, saw FROM all_rows ORDER BY id`, name)
		if err != nil {
			return err
		}
		entries, err = pgx.CollectRows(rows, pgx.RowToStructByPos[matrix.Entry])
		if err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	return entries, err
}
