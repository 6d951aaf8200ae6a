// Package sqltable implements [locker.Locker] on a table of a MySQL, MariaDB or SQLite database, over database/sql. The driver is the
// caller's, and this module requires none. What all locks of package register have in common is in [register]'s documentation.
//
//	db, err := sql.Open("mysql", "app:secret@tcp(db:3306)/app")
//	if err != nil {
//		return err
//	}
//	if _, err := db.ExecContext(ctx, sqltable.Schema(sqltable.MySQL, "")); err != nil { // or in your migrations
//		return err
//	}
//	locks, err := sqltable.New(db, sqltable.MySQL, sqltable.Options{})
//
// # Guarantees
//
// There is at most one holder, and tokens increase, for as long as the database keeps what it has committed. Each commit is synced: settings
// with which a crash loses some are refused ([locker.ErrRefused]). So are connections without autocommit.
//
// A failover of MySQL to a replica that lacks the last commits can hand a held lock to a second holder, and sends tokens back: so it is
// declared ([locker.DurableReplica]), unless [Options] say that this does not happen.
//
// # Losing a lock
//
// A lock is lost when its holder could not renew it for its TTL: the server is away, the pool of connections is used up, a transaction of
// others keeps the row or, in SQLite, the file. Waiters look four times a second ([Options].Poll).
//
// # Clocks
//
// A row has the time of its last change by the database's clock, in UTC. In SQLite that is the clock of the
// machine. If it is set forward by more than a TTL, processes that come later take live holders for dead. If replicas take over, their clocks
// must agree.
//
// # Requirements
//
// MySQL 5.7 or MariaDB 10.3 with InnoDB, and all programs write to one server at a time: with several that take writes (Galera, Group
// Replication in its multi-primary mode, replication in a ring), all have the address of the same one. Reads come from that one, too.
// The user needs SELECT, INSERT and UPDATE.
//
// SQLite 3.24 and a file on a local disk, in WAL mode, with synchronous FULL and a busy_timeout. In a network file system SQLite's own
// locks do not work: https://www.sqlite.org/faq.html#q5.
package sqltable

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/sqltable/internal/table"
)

// Dialect is which SQL a database speaks.
type Dialect int

const (
	// MySQL is that of MySQL and MariaDB.
	MySQL Dialect = iota + 1
	// SQLite is that of SQLite.
	SQLite
)

var dialects = map[Dialect]table.SQL{MySQL: table.MySQL, SQLite: table.SQLite}

// defaultTable is the table without [Options].Table.
const defaultTable = "lockstile"

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Table is the table's name, "lockstile" by default. It may have the database's before a dot.
	Table string

	// Poll is for how long a waiter waits before it looks again. The default is a quarter of a second.
	Poll time.Duration

	// SyncReplica declares that no replica of MySQL takes over that lacks a confirmed commit. Semi-synchronous replication
	// does so only if it never falls back to the asynchronous kind (rpl_semi_sync_master_timeout, rpl_semi_sync_source_timeout). The
	// clocks of the servers must agree. We cannot check it.
	SyncReplica bool

	// NoReplica declares that nothing ever takes the place of the MySQL server: no replica is promoted, no backup is restored under
	// its clients. We cannot check it.
	NoReplica bool
}

// Schema returns the statement that makes the table, unless it is there. Without a name it is "lockstile". It
// is the same for all versions of Lockstile that read the same records.
func Schema(dialect Dialect, name string) string {
	return dialects[dialect].Create(cmp.Or(name, defaultTable))
}

// New returns a Locker on db, which must have the table of [Schema]. It sends nothing, and never closes db. Each request takes a connection
// of db for one statement: a goroutine that asks for a lock while it has the last one waits for itself, and where others keep them
// all for long, locks are lost.
func New(db *sql.DB, dialect Dialect, opts Options) (*register.Locker, error) {
	words, ok := dialects[dialect]
	switch {
	case db == nil:
		return nil, errors.New("sqltable: the db is nil")
	case !ok:
		return nil, fmt.Errorf("sqltable: there is no dialect %d: take MySQL or SQLite", dialect)
	case opts.SyncReplica && opts.NoReplica:
		return nil, errors.New("sqltable: SyncReplica and NoReplica exclude each other")
	case dialect == SQLite && (opts.SyncReplica || opts.NoReplica):
		return nil, errors.New("sqltable: SQLite has no replicas: leave SyncReplica and NoReplica alone")
	}
	of := register.Options{Backend: "sqltable", Age: true, Poll: opts.Poll}
	if dialect == MySQL && !opts.NoReplica {
		of.Exclusion = locker.AgreedClocks
		if !opts.SyncReplica {
			of.Exclusion, of.Tokens = of.Exclusion|locker.DurableReplica, locker.DurableReplica
		}
	}
	return register.New(table.New(db, words, cmp.Or(opts.Table, defaultTable)), of)
}
