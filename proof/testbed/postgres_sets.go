package testbed

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/pgfence"
	"github.com/lockstile/locker/proof/matrix"
)

// sets is a table that takes every set, from anybody. The newest row of a name is its set.
const sets = `CREATE TABLE IF NOT EXISTS matrix_sets (
	id bigserial PRIMARY KEY, name text NOT NULL, guarded boolean NOT NULL, elements bigint[] NOT NULL)`

// Sets implements [matrix.Writer].
func (l *inTransactions) Sets(ctx context.Context, name string, token fencing.Token) (s matrix.Sets, err error) {
	err = l.inside(ctx, token, func(tx pgx.Tx) error {
		if err := pgfence.NewGuard(tx).Check(ctx, name, token); err != nil {
			return err
		}
		s.Unguarded, err = readSet(ctx, tx, name, false)
		if err == nil {
			s.Guarded, err = readSet(ctx, tx, name, true)
		}
		return err
	})
	return s, err
}

// Add implements [matrix.Writer].
func (l *inTransactions) Add(ctx context.Context, name string, token fencing.Token, element int, s matrix.Sets) error {
	err := l.Write(ctx, name, token, element)
	if err == nil {
		err = l.inside(ctx, token, func(tx pgx.Tx) error { return writeSet(ctx, tx, name, false, s.Unguarded) })
	}
	if err != nil {
		return err
	}
	return l.inside(ctx, token, func(tx pgx.Tx) error {
		if err := pgfence.NewGuard(tx).Check(ctx, name, token); err != nil {
			return err
		}
		return writeSet(ctx, tx, name, true, s.Guarded)
	})
}

// inside calls f in the transaction that has the lock; or, if that is what is wrong, in
// another one.
func (l *inTransactions) inside(ctx context.Context, token fencing.Token, f func(tx pgx.Tx) error) error {
	if l.aside {
		return pgx.BeginFunc(ctx, l.pool, f)
	}
	l.mu.Lock()
	tx := l.held[token]
	l.mu.Unlock()
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return f(tx)
}

func readSet(ctx context.Context, tx pgx.Tx, name string, guarded bool) (elements []int, err error) {
	err = tx.QueryRow(ctx, `SELECT elements FROM matrix_sets WHERE name = $1 AND guarded = $2 ORDER BY id DESC LIMIT 1`, name, guarded).Scan(&elements)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil // nobody has written it yet
	}
	return elements, err
}

func writeSet(ctx context.Context, tx pgx.Tx, name string, guarded bool, elements []int) error {
	_, err := tx.Exec(ctx, `INSERT INTO matrix_sets (name, guarded, elements) VALUES ($1, $2, $3)`, name, guarded, elements)
	return err
}
