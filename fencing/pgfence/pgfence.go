// Package pgfence guards data in PostgreSQL: a transaction is refused if its
// fencing token is smaller than the greatest that its resource has seen. The locks may be
// in PostgreSQL or anywhere else. Before first use the database needs the [Schema].
//
//	tx, err := pool.Begin(ctx)
//	…
//	if err := pgfence.NewGuard(tx).Check(ctx, "account/7", lock.Token()); err != nil {
//		return err // and roll back
//	}
//	_, err = tx.Exec(ctx, `UPDATE account SET …`)
//	…
//	err = tx.Commit(ctx)
//
// # What is promised
//
// The check is one statement of the caller's transaction, which holds the resource's
// row until it ends. So check and writes are one step: a holder with a greater token
// waits for the commit, and once its own check has worked the smaller token is refused.
// The token becomes durable together with the writes, and the commit of both waits for
// the disk, also where synchronous_commit is off or local.
//
// # Readers
//
// With CheckShared, transactions of readers go on side by side, and a writer's check waits
// for their end, with two conditions: the reader has claimed the resource once before, by a
// CheckShared that has a transaction to itself ([locker.WithGuard] with a pool does that),
// and a later reader has not come in without. A reader's first check changes the
// resource's row, so it waits for all others there, and they for its transaction.
//
// # What is not
//
// Only transactions that call Check are refused. A rollback to a savepoint before
// the check undoes the check. Nobody checks the transaction's other statements: a
// role that writes under a guard can write the guard's table too, and make it forget,
// so let no stranger choose the SQL. A stale token is reported as an error and does
// not end the transaction by itself: roll it back. At isolation levels above read
// committed, a transaction that had to wait for another one gets a serialization
// error instead, and can be run again.
package pgfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/fencing"
)

// Schema makes the table in which guards keep their tokens: a row for every resource
// that they have seen, with the greatest token that wrote and the greatest number that read.
// Apply it as a migration of your own; applying it again changes nothing. A role that reads
// or writes under a guard needs SELECT, INSERT and UPDATE on it.
//
// A table of the first layout, which knew no readers, gets the column that it lacks, and
// keeps its tokens. From then on programs of that layout are refused by the table itself:
// they would take no notice of readers.
//
// The table is made in the first schema of the search path. It is an error if the
// search path has it in another one already: a second table would know none of the
// tokens in the first.
const Schema = schema

const schema = `
DO $$
DECLARE
  _path pg_catalog.text;
  _found pg_catalog.regclass;
  _there pg_catalog.name;
  _hidden pg_catalog.name;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock(1819239275, 0);
  _found := pg_catalog.to_regclass('lockstile_fence');
  _path := pg_catalog.current_setting('search_path');
  _there := pg_catalog.current_schema();
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true); -- a stranger's operators are not found
  SELECT n.nspname INTO _hidden FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = 'lockstile_fence' AND NOT has_schema_privilege(n.oid, 'USAGE')
      AND n.nspname IN (SELECT replace(btrim(p, ' "'), '$user', current_user) FROM unnest(string_to_array(_path, ',')) p);
  IF FOUND THEN
    RAISE EXCEPTION 'the fencing tokens are in the schema %, which this search path has, and the role % may not use: a second table would know none of them',
      _hidden, current_user USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF _found IS NULL THEN
    PERFORM set_config('search_path', _path, true);
    CREATE TABLE lockstile_fence (
      resource pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
      token    numeric(20) NOT NULL,
      shared   numeric(20) NOT NULL
    );
    RETURN;
  END IF;
  IF EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = _found AND n.nspname <> _there) THEN
    RAISE EXCEPTION 'the fencing tokens are in the table %, and this search path begins with %: a second table would know none of them',
      _found, _there USING ERRCODE = 'duplicate_table', HINT = 'Set search_path.';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = _found AND attname = 'shared' AND NOT attisdropped) THEN
    EXECUTE format('ALTER TABLE %1$s ADD COLUMN shared numeric(20) NOT NULL DEFAULT 0; ALTER TABLE %1$s ALTER COLUMN shared DROP DEFAULT', _found);
  END IF;
  PERFORM set_config('search_path', _path, true);
END $$;
`

// Guard is a [fencing.SharedGuard] in the transaction that it was made for.
type Guard struct {
	ask func(ctx context.Context, sql string, args ...any) row
}

type row interface{ Scan(dest ...any) error }

var _ fencing.SharedGuard = (*Guard)(nil)

// Querier is a [pgx.Tx]; or a connection or a pool, for claiming a resource right
// after its lock was granted, where nothing is written with the check.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// NewGuard returns a Guard in tx.
func NewGuard(tx Querier) *Guard {
	return &Guard{func(ctx context.Context, sql string, args ...any) row { return tx.QueryRow(ctx, sql, args...) }}
}

// SQLQuerier is an [sql.Tx] of package database/sql, or, for claims, an [sql.DB].
type SQLQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// NewSQLGuard returns a Guard in tx, whose driver must be one for PostgreSQL.
func NewSQLGuard(tx SQLQuerier) *Guard {
	return &Guard{func(ctx context.Context, sql string, args ...any) row { return tx.QueryRowContext(ctx, sql, args...) }}
}

// durable makes the commit wait for the disk in every session: if a crash could undo a
// claim, smaller tokens would be accepted again.
const durable = `CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) ANY (ARRAY['off', 'local'])
  THEN pg_catalog.set_config('synchronous_commit', 'on', true) END`

// write locks the row before it compares tokens, by the insert alone: a SELECT before
// it would see the row as it was when the statement began. The name is sent as bytes,
// so that it is the same in a session of any encoding. Types, functions and operators are named
// with their schema: a stranger's, who may create something in a schema of the search path,
// would compare in their place.
const write = `
INSERT INTO lockstile_fence AS f (resource, token, shared) VALUES (pg_catalog.convert_from($1::pg_catalog.bytea, 'UTF8'), CAST($2 AS numeric), 0)
ON CONFLICT (resource) DO UPDATE SET token = CASE WHEN excluded.token OPERATOR(pg_catalog.<) f.shared THEN f.token ELSE greatest(f.token, excluded.token) END
RETURNING greatest(f.token, f.shared)::pg_catalog.text, ` + durable

// read leaves the row as it is where the mark of readers is high enough already, and shares
// it with other readers: a writer has to wait for all of them. It does not lock a row that
// it goes on to change: two readers, each of which had, would deadlock. A stale
// reader's number may be noted: it shuts out no more than the token that made it stale.
const read = `
WITH marked AS (
  SELECT token FROM lockstile_fence
  WHERE resource OPERATOR(pg_catalog.=) pg_catalog.convert_from($1::pg_catalog.bytea, 'UTF8') AND shared OPERATOR(pg_catalog.>=) CAST($2 AS numeric) FOR SHARE
), raised AS (
  INSERT INTO lockstile_fence AS f (resource, token, shared)
  SELECT pg_catalog.convert_from($1::pg_catalog.bytea, 'UTF8'), 0, CAST($2 AS numeric) WHERE NOT EXISTS (SELECT FROM marked)
  ON CONFLICT (resource) DO UPDATE SET shared = greatest(f.shared, excluded.shared)
  RETURNING f.token
)
SELECT token::pg_catalog.text, ` + durable + ` FROM (SELECT token FROM marked UNION ALL SELECT token FROM raised) AS seen`

// Check implements [fencing.Guard]. It holds the resource until the transaction ends:
// if two transactions check the same resources in different orders, they may wait for
// each other, and the server then ends one of them. After an error of the server's own,
// the transaction can only be rolled back.
func (g *Guard) Check(ctx context.Context, resource string, token fencing.Token) error {
	return g.run(ctx, write, fencing.StaleError{Resource: resource, Token: token})
}

// CheckShared implements [fencing.SharedGuard]. It keeps writers from the resource until the
// transaction ends, as Check keeps everybody, and the same goes for errors.
func (g *Guard) CheckShared(ctx context.Context, resource string, token fencing.SharedToken) error {
	return g.run(ctx, read, fencing.StaleError{Resource: resource, Token: fencing.Token(token), Reader: true})
}

func (g *Guard) run(ctx context.Context, sql string, mine fencing.StaleError) error {
	if mine.Token == 0 {
		return fmt.Errorf("pgfence: check %.100q: %w", mine.Resource, fencing.ErrZeroToken)
	}
	var text string
	var durable any // not needed
	err := g.ask(ctx, sql, []byte(mine.Resource), mine.Token.String()).Scan(&text, &durable)
	if err == nil {
		err = ctx.Err() // a driver may have cancelled: a server that waits for its standby then answers as if that had the token
	}
	if err != nil {
		if withoutTable(err) { // before the cause is added, which is the caller's and says nothing of the table
			err = fmt.Errorf("the table lockstile_fence is missing, or of an older layout: apply Schema of package pgfence, and check the search path: %w", err)
		}
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return fmt.Errorf("pgfence: check %.100q: %w", mine.Resource, err)
	}
	if mine.Seen, err = fencing.ParseToken(text); err != nil {
		return fmt.Errorf("pgfence: check %.100q: %w", mine.Resource, err)
	}
	if mine.Token < mine.Seen {
		return fmt.Errorf("pgfence: check: %w", &mine)
	}
	return nil
}

// withoutTable reports whether the server does not find the table, or not all of its
// columns. The errors of pgx and of pq both have this method.
func withoutTable(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && (state.SQLState() == "42P01" || state.SQLState() == "42703")
}
