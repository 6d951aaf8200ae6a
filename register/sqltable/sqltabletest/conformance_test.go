// Package sqltabletest has the tests of package sqltable, in a module of their own: what they require of drivers would otherwise
// set the least versions of these for all users of the locks.
package sqltabletest

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/registertest"
	"github.com/lockstile/locker/register/sqltable"
	"github.com/lockstile/locker/register/sqltable/internal/table"
)

// locks is the name of tests' databases.
const locks = "locks"

func TestConformanceOnMariaDB(t *testing.T) {
	s := mariaDB(t)
	registertest.Run(t, registertest.Harness{
		New: func(t testing.TB) register.Store {
			return table.New(open(t, "mysql", s.DSN(locks)), table.MySQL, "lockstile")
		},
		Options: register.Options{Backend: "sqltable", Age: true},
	})
}

func TestConformanceOnSQLite(t *testing.T) {
	dsn := sqliteFile(t)
	registertest.Run(t, registertest.Harness{
		New:     func(t testing.TB) register.Store { return table.New(open(t, "sqlite", dsn), table.SQLite, "lockstile") },
		Options: register.Options{Backend: "sqltable", Age: true},
	})
}

// mariaDB starts a server that has the table.
func mariaDB(t testing.TB, settings ...string) *testserver.MariaDBServer {
	t.Helper()
	s := testserver.MariaDB(t, settings...)
	do(t, open(t, "mysql", s.DSN("")), "CREATE DATABASE "+locks)
	do(t, open(t, "mysql", s.DSN(locks)), sqltable.Schema(sqltable.MySQL, ""))
	return s
}

// sqliteFile makes a file that has the table, and returns its DSN. SQLite's default is to sync each commit.
func sqliteFile(t testing.TB) string {
	t.Helper()
	dsn := "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	do(t, open(t, "sqlite", dsn), sqltable.Schema(sqltable.SQLite, ""))
	return dsn
}

// open returns a pool of connections that ends with the test.
func open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func do(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%.100s: %v", statement, err)
	}
}
