package postgres_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing/pgfence"
	"github.com/lockstile/locker/postgres"
)

// A lock in one database, data in the same or another, and a token that keeps a
// holder out that was paused for too long.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	l, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	err = locker.Do(ctx, l, "account/7", func(ctx context.Context, lock *locker.Lock) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) // nothing is left to roll back after Commit
		if err := pgfence.NewGuard(tx).Check(ctx, "account/7", lock.Token()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE account SET balance = balance - 1 WHERE id = 7`); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Lock and data in one transaction need no guard.
func ExampleLockTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback(ctx)
	token, err := postgres.LockTx(ctx, tx, "invoices/42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("for what leaves the database after the commit:", token)
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
}
