package pgfence_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/pgfence"
)

// A write that is refused if its lock has had another holder since.
func Example() {
	ctx, token := context.Background(), fencing.Token(33) // lock.Token()
	db, err := sql.Open("pgx", "postgres://localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback() // nothing is left to roll back after Commit
	if err := pgfence.NewSQLGuard(tx).Check(ctx, "account/7", token); err != nil {
		log.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance - 1 WHERE id = 7`); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}
