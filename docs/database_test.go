package docs_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
)

// soon returns a context that ends when a test has waited for too long.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	t.Cleanup(cancel)
	return ctx
}

// database starts a PostgreSQL and returns its URL and a connection.
func database(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	url := testserver.Postgres(t).URL("postgres")
	db, err := pgx.Connect(soon(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	return url, db
}

func mustExec(t *testing.T, db *pgx.Conn, sql string) {
	t.Helper()
	if _, err := db.Exec(soon(t), sql); err != nil {
		t.Fatal(err)
	}
}

func number(t *testing.T, db *pgx.Conn, sql string) (n int64) {
	t.Helper()
	if err := db.QueryRow(soon(t), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
