package sqltabletest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/sqltable"
	"github.com/lockstile/locker/register/sqltable/internal/table"
)

// A file that loses what was confirmed, or whose writers do not wait for each other, is refused.
func TestFilesThatLoseWritesAreRefused(t *testing.T) {
	for from, to := range map[string]string{
		"synchronous(FULL)":   "synchronous(NORMAL)",
		"busy_timeout(10000)": "busy_timeout(0)",
		"journal_mode(WAL)":   "journal_mode(DELETE)",
	} {
		setting, _, _ := strings.Cut(from, "(")
		isRefused(t, onSQLite(t, sqliteFile(t, from, to)), setting)
	}
	unlocked(t, tried(t, onSQLite(t, sqliteFile(t)), "with all that is needed"))
	unlocked(t, tried(t, onSQLite(t, sqliteFile(t, "FULL", "EXTRA")), "with more"))
	isRefused(t, onSQLite(t, ":memory:"), "no such table")
}

func TestErrorsOfSQLiteThatLastAreRefused(t *testing.T) {
	dsn := sqliteFile(t)
	isRefused(t, newLocker(t, open(t, "sqlite", dsn), sqltable.SQLite, sqltable.Options{Table: "none"}), "no such table: none")
	isRefused(t, onSQLite(t, dsn+"&_pragma=query_only(1)"), "readonly")
	do(t, open(t, "sqlite", dsn), "CREATE TABLE others (name BLOB PRIMARY KEY)")
	isRefused(t, newLocker(t, open(t, "sqlite", dsn), sqltable.SQLite, sqltable.Options{Table: "others"}), "no such column")
}

// Another program's transaction keeps the whole file. That is no refusal, and no "taken" either.
func TestAFileThatIsBusyIsWaitedFor(t *testing.T) {
	dsn := sqliteFile(t)
	impatient := strings.Replace(dsn, "busy_timeout(10000)", "busy_timeout(10)", 1)
	a, b := onSQLite(t, impatient), onSQLite(t, dsn)
	unlocked(t, tried(t, a, "busy"))
	unlocked(t, tried(t, b, "busy"))
	tx, err := open(t, "sqlite", dsn+"&_txlock=immediate").BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if lock, err := a.TryLock(t.Context(), "busy"); !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrRefused) || errors.Is(err, locker.ErrTaken) {
		t.Errorf("while the file is busy, a lock was asked for, and the answer is %v, %v", lock, err)
	}
	got := make(chan *locker.Lock)
	go func() {
		lock, err := b.TryLock(t.Context(), "busy")
		if err != nil {
			t.Errorf("with a longer busy_timeout, TryLock returned %v", err)
		}
		got <- lock
	}()
	select {
	case <-got:
		t.Error("a lock was granted while another transaction kept the file")
	case <-time.After(300 * time.Millisecond):
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if lock := <-got; lock != nil {
		unlocked(t, lock)
	}
}

// A call ends with its context while the file is busy, also with a driver whose calls do not, such as mattn/go-sqlite3. Method: one that hides
// from database/sql that it knows of contexts.
func TestWaitForAFileEndsWithItsContext(t *testing.T) {
	dsn := sqliteFile(t)
	hears := open(t, "sqlite", dsn)
	deaf := sql.OpenDB(deafDriver{hears.Driver(), dsn})
	t.Cleanup(func() { _ = deaf.Close() })
	version := sqliteRows(t, dsn).swapped("busy", "", "1")
	for what, db := range map[string]*sql.DB{"hears": hears, "deaf": deaf} {
		r := rows{t, table.New(db, table.SQLite, "lockstile")}
		r.got("busy")
		tx, err := open(t, "sqlite", dsn+"&_txlock=immediate").BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		_, err = r.Swap(ctx, "busy", version, []byte("2"))
		if err == nil || errors.Is(err, register.ErrChanged) || time.Since(began) > 5*time.Second {
			t.Errorf("%s: a write that was given up returned the error %v after %v", what, err, time.Since(began))
		}
		cancel()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// deafDriver makes connections that know of no contexts.
type deafDriver struct {
	driver driver.Driver
	dsn    string
}

func (d deafDriver) Driver() driver.Driver { return d.driver }

func (d deafDriver) Connect(context.Context) (driver.Conn, error) {
	conn, err := d.driver.Open(d.dsn)
	return deafConn{conn}, err
}

type deafConn struct{ driver.Conn }

func (c deafConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	return struct{ driver.Stmt }{stmt}, err
}

// A text would be a time of another zone. And the clock counts in milliseconds: of a write in the last moment of one, and a read in the first of
// the next, it says that they are one apart. Method: nobody waits for the disk, so that many are.
func TestAgeOfARecordInSQLite(t *testing.T) {
	dsn := sqliteFile(t) + "&_timezone=Pacific%2FKiritimati"
	reader, writer := sqliteRows(t, dsn), sqliteRows(t, strings.Replace(dsn, "FULL", "OFF", 1))
	version := ""
	for i := range 300 {
		began := time.Now()
		version = writer.swapped("age", version, fmt.Sprint(i))
		if age, most := reader.got("age").Age, time.Since(began); age > most {
			t.Fatalf("a record of %v ago is said to be %v old", most, age)
		}
	}
	written := time.Now()
	time.Sleep(50 * time.Millisecond)
	if least, age := time.Since(written)-10*time.Millisecond, reader.got("age").Age; age < least {
		t.Errorf("a record of more than %v ago is said to be %v old", least, age)
	}
}

func TestRowThatWasDeletedInSQLite(t *testing.T) {
	dsn := sqliteFile(t)
	r := sqliteRows(t, dsn)
	version := r.swapped("swept", "", "1")
	do(t, open(t, "sqlite", dsn), "DELETE FROM lockstile")
	r.isLate("swept", version)
	r.swapped("swept", "", "another 1")
	r.isLate("swept", version)
	r.isLate("swept", "")
}
