package sqltabletest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/locktest"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/sqltable"
	"github.com/lockstile/locker/register/sqltable/internal/table"
)

// locks is the name of tests' databases.
const locks = "locks"

// patience bounds every wait.
const patience = 30 * time.Second

// mariaDB starts a server that has the table.
func mariaDB(t testing.TB, settings ...string) *testserver.MariaDBServer {
	t.Helper()
	s := testserver.MariaDB(t, settings...)
	do(t, open(t, "mysql", s.DSN("")), "CREATE DATABASE "+locks)
	do(t, open(t, "mysql", s.DSN(locks)), sqltable.Schema(sqltable.MySQL, ""))
	return s
}

// sqliteFile makes a file that has the table, and returns its DSN, in which texts are replaced.
func sqliteFile(t testing.TB, oldnew ...string) string {
	t.Helper()
	return sqliteFileIn(t, t.TempDir(), oldnew...)
}

func sqliteFileIn(t testing.TB, dir string, oldnew ...string) string {
	t.Helper()
	dsn := "file:" + filepath.Join(dir, "locks.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	dsn = strings.NewReplacer(oldnew...).Replace(dsn)
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

// ask returns what a query says in one row and one column.
func ask(t testing.TB, db *sql.DB, query string) (answer string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&answer); err != nil {
		t.Fatalf("%.100s: %v", query, err)
	}
	return answer
}

// status is a counter of the server's.
func status(t testing.TB, db *sql.DB, name string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// newLocker returns one more process's Locker.
func newLocker(t testing.TB, db *sql.DB, dialect sqltable.Dialect, opts sqltable.Options) *register.Locker {
	t.Helper()
	l, err := sqltable.New(db, dialect, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// onMariaDB returns one more process's Locker on a server, with parameters of its DSN.
func onMariaDB(t testing.TB, s *testserver.MariaDBServer, params ...string) *register.Locker {
	t.Helper()
	return newLocker(t, open(t, "mysql", s.DSN(locks, params...)), sqltable.MySQL, sqltable.Options{})
}

func onSQLite(t testing.TB, dsn string) *register.Locker {
	t.Helper()
	return newLocker(t, open(t, "sqlite", dsn), sqltable.SQLite, sqltable.Options{})
}

// What all these tests do.
var tried, unlocked, queued, until = locktest.Try, locktest.Unlock, locktest.Waits, locktest.Until

// isTaken checks that a name is taken.
func isTaken(t testing.TB, l locker.Locker, name string) {
	t.Helper()
	if lock, err := l.TryLock(t.Context(), name); !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("a lock that is held was asked for, and the answer is %v, %v", lock, err)
	}
}

// isRefused checks that locks are refused at once, also to those who would wait, with an error that has words.
func isRefused(t testing.TB, l locker.Locker, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lock, err := l.Lock(ctx, "refused")
	if !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), words) {
		t.Errorf("Lock returned %v and the error %v, and should have been refused with %q", lock, err, words)
	}
}

// rows is a Store, and a test that it may end.
type rows struct {
	testing.TB
	*table.Store
}

func mysqlRows(t testing.TB, dsn string) rows {
	t.Helper()
	return rows{t, table.New(open(t, "mysql", dsn), table.MySQL, "lockstile")}
}

func sqliteRows(t testing.TB, dsn string) rows {
	t.Helper()
	return rows{t, table.New(open(t, "sqlite", dsn), table.SQLite, "lockstile")}
}

// swapped writes a record, and returns its version.
func (r rows) swapped(name, version, record string) string {
	r.Helper()
	next, err := r.Swap(r.Context(), name, version, []byte(record))
	if err != nil {
		r.Fatalf("Swap of %q: %v", name, err)
	}
	return next
}

// isLate checks that a version is not that of a record.
func (r rows) isLate(name, version string) {
	r.Helper()
	if _, err := r.Swap(r.Context(), name, version, []byte(fmt.Sprintf("late, at version %q", version))); !errors.Is(err, register.ErrChanged) {
		r.Fatalf("Swap of %q at version %q, which is late, returned the error %v, and not ErrChanged", name, version, err)
	}
}

func (r rows) got(name string) register.Entry {
	r.Helper()
	e, err := r.Get(r.Context(), name)
	if err != nil {
		r.Fatalf("Get of %q: %v", name, err)
	}
	return e
}
