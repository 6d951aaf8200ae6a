// Package table keeps the records of locks as rows of a table. It is a package of its own so that tests in another module reach its
// [Store]: the module of package sqltable shall require no driver.
package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/register"
)

// SQL is what databases say in different words.
type SQL struct {
	columns string
	now     string // the time in UTC. Local time is set back once a year
	age     string // of the row t, in microseconds
	keep    string // the end of an INSERT that leaves a row alone that is there
	unfit   string // the cases of an expression: what is wrong with the settings of the connection or the server
}

// MySQL is the SQL of MySQL and MariaDB. VARBINARY compares bytes, where a text would ignore case or spaces at the end. A BLOB
// is too small for a record. UTC_TIMESTAMP is the same on a replica that runs the statement again; SYSDATE is not.
var MySQL = SQL{
	columns: "(name VARBINARY(512) NOT NULL PRIMARY KEY, record MEDIUMBLOB NOT NULL, changed DATETIME(6) NOT NULL) ENGINE=InnoDB",
	now:     "UTC_TIMESTAMP(6)",
	age:     "TIMESTAMPDIFF(MICROSECOND, t.changed, UTC_TIMESTAMP(6))",
	keep:    "ON DUPLICATE KEY UPDATE changed = changed",
	// With the binary log, a crash undoes what is not in it: https://mariadb.com/kb/en/binary-log-group-commit-and-innodb-flushing-performance/
	unfit: `WHEN NOT @@autocommit THEN 'autocommit is off, so that nothing is ever committed: set autocommit=1 in the DSN'
		WHEN @@innodb_flush_log_at_trx_commit NOT IN (1, 3) THEN 'the server confirms what a crash loses: set innodb_flush_log_at_trx_commit=1'
		WHEN @@innodb_flush_log_at_trx_commit = 1 AND @@log_bin AND @@sync_binlog <> 1 THEN 'the server confirms what a crash loses: set sync_binlog=1'`,
}

// SQLite is the SQL of SQLite, whose clock counts in milliseconds.
var SQLite = SQL{
	columns: "(name BLOB NOT NULL PRIMARY KEY, record BLOB NOT NULL, changed REAL NOT NULL)",
	now:     "julianday('now')",
	age:     "CAST((julianday('now') - t.changed) * 86400000000 AS INTEGER)",
	keep:    "ON CONFLICT (name) DO NOTHING",
	unfit: `WHEN (SELECT journal_mode FROM pragma_journal_mode) <> 'wal' THEN 'the file is not in WAL mode: PRAGMA journal_mode = WAL'
		WHEN (SELECT synchronous FROM pragma_synchronous) < 2 THEN 'a crash of the machine loses what was confirmed: PRAGMA synchronous = FULL'
		WHEN (SELECT timeout FROM pragma_busy_timeout) = 0 THEN 'nobody waits for another writer: PRAGMA busy_timeout = 5000'`,
}

// tick is by how much at most the difference of two readings of a database's clock is too large.
const tick = 2 * time.Millisecond

// Create is the statement that makes the table.
func (q SQL) Create(table string) string {
	return "CREATE TABLE IF NOT EXISTS " + quote(table) + " " + q.columns
}

// quote quotes the name of a table, with that of its database before a dot or without.
func quote(table string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(table, "`", "``"), ".", "`.`") + "`"
}

// Store is a [register.Store] and a [register.Lister]. A record's version is the record itself, for no two are alike. In its statements all
// values are hexadecimal literals: bytes whatever the connection's character set and modes are, and one round trip, where placeholders
// take two with the usual driver for MySQL. Each statement is a transaction of its own.
//
// A statement is sent once: database/sql repeats only what its driver says was never sent (driver.ErrBadConn).
type Store struct {
	db                      *sql.DB
	busy                    chan struct{}
	get, insert, swap, list string
}

// most is how many statements run at once. A pool has no limit of its own by default, and a thousand locks would take a thousand connections.
const most = 16

// New returns a Store on a table.
func New(db *sql.DB, q SQL, table string) *Store {
	table = quote(table)
	return &Store{
		db:   db,
		busy: make(chan struct{}, most),
		// It has a row also where the table has none: it always says what is unfit.
		get:    "SELECT t.record, " + q.age + ", CASE " + q.unfit + " ELSE '' END FROM (SELECT 1) AS one LEFT JOIN " + table + " AS t ON t.name = x'%x'",
		insert: "INSERT INTO " + table + " (name, record, changed) VALUES (x'%x', x'', " + q.now + ") " + q.keep,
		swap:   "UPDATE " + table + " SET record = x'%x', changed = " + q.now + " WHERE name = x'%x' AND record = x'%x'",
		// The byte FF follows all others, and is in no name.
		list: "SELECT t.name, t.record, " + q.age + " FROM " + table + " AS t WHERE t.name >= x'%[1]x' AND t.name < x'%[1]xff' AND t.record <> x''",
	}
}

// Get implements [register.Store].
func (s *Store) Get(ctx context.Context, name string) (register.Entry, error) {
	return ask(ctx, s, func() (register.Entry, error) {
		var record []byte
		var age sql.NullInt64
		var unfit string
		err := s.db.QueryRowContext(ctx, fmt.Sprintf(s.get, name)).Scan(&record, &age, &unfit)
		if err == nil && unfit != "" {
			err = driver.Refused(errors.New(unfit))
		}
		return entry(record, age.Int64), err
	})
}

// entry makes an Entry of a row. The time of its last change is when that statement began: after the write was sent, from when its sender
// counts, although it may have been committed later.
func entry(record []byte, age int64) register.Entry {
	return register.Entry{Record: record, Version: string(record), Age: max(time.Duration(age)*time.Microsecond-tick, 0)}
}

// Swap implements [register.Store]. A row with an empty record is none. So a new name takes an INSERT more, and it does not matter whose INSERT
// made the row, which MySQL does not tell alike on all connections (CLIENT_FOUND_ROWS): the UPDATE alone decides.
func (s *Store) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	return ask(ctx, s, func() (string, error) {
		if version == "" {
			if _, err := s.db.ExecContext(ctx, fmt.Sprintf(s.insert, name)); err != nil {
				return "", err
			}
		}
		res, err := s.db.ExecContext(ctx, fmt.Sprintf(s.swap, record, name, version))
		if err != nil {
			return "", err
		}
		changed, err := res.RowsAffected()
		if err == nil && changed == 0 {
			err = register.ErrChanged
		}
		return string(record), err
	})
}

// List implements [register.Lister].
func (s *Store) List(ctx context.Context, prefix string) (map[string]register.Entry, error) {
	return ask(ctx, s, func() (map[string]register.Entry, error) {
		rows, err := s.db.QueryContext(ctx, fmt.Sprintf(s.list, prefix))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		entries := make(map[string]register.Entry)
		for rows.Next() {
			var name, record []byte
			var age int64
			if err := rows.Scan(&name, &record, &age); err != nil {
				return nil, err
			}
			entries[string(name)] = entry(record, age)
		}
		return entries, rows.Err()
	})
}

// ask asks the database when there is room, and marks errors that last. It returns at the end of ctx also while the driver does not: one of SQLite's
// waits for a busy file as long as busy_timeout says.
func ask[T any](ctx context.Context, s *Store, do func() (T, error)) (T, error) {
	got, err := driver.Within(ctx, s.busy, do)
	if err != nil && lasting.MatchString(err.Error()) {
		err = driver.Refused(err)
	}
	return got, err
}

// lasting are errors that last until somebody changes something, and before which nothing was done: access denied (1044, 1045, 1142, 1143, 1698), no
// such database, column or table (1049, 1054, 1146), another language (1064). They are texts, because the types of drivers are
// not to be imported: the numbers are MySQL's, and the words are SQLite's own. A text that is not here ends no wait. A server
// that only reads (1290, 1836) is none, because a failover ends that.
var lasting = regexp.MustCompile(`^(?i:error )(1044|1045|1049|1054|1064|1142|1143|1146|1698)\b|no such table|no such column|attempt to write a readonly database|file is not a database`)
