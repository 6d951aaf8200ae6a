package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
)

// Schema is what the locks need in the database: a sequence, a few tables and the
// functions that work on them. Applying it again changes nothing, so it can
// be a migration of your own; EnsureSchema applies it. It contains several
// statements, which must reach the server in one transaction.
//
// Everything is made in the first schema of the search path, where it must also
// be found later. It is an error if the search path has it in another schema
// already. Two schemas of one database can each have a set of their own, for
// programs that have nothing in common: leases of one do not exclude those of the
// other, and tokens of the two say nothing about each other, though the advisory
// locks of [NewSession] and [LockTx] are the database's and do exclude.
//
// A role that only locks needs SELECT, INSERT, UPDATE and DELETE on the tables
// lockstile_lease, lockstile_queue, lockstile_mark, lockstile_session and
// lockstile_known, and SELECT and USAGE on the sequence lockstile_token. Never set or alter that, for tokens are drawn from it.
//
// It has a version. A program of an earlier version is refused from then on, in words
// that say so, and cannot lower it; one of a later version is refused until it has
// been raised.
const Schema = schemaPlace + schemaUpgrade + schemaTables + schemaToken + schemaQueue + schemaLease + schemaSession + schemaCare

// ensureSchema applies Schema over a connection of the pool. Without arguments
// pgx sends it as one message, which the server carries out as one transaction.
func ensureSchema(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, Schema); err != nil {
		return fmt.Errorf("postgres: apply the schema: %w: %w", locker.ErrUnavailable, classify(err))
	}
	return nil
}

// schemaPlace comes first: those who apply the schema at once do so one after the
// other, on a server and in a place that will do.
const schemaPlace = `
SELECT pg_advisory_xact_lock(1819239275, 0);

DO $$
DECLARE
  _there name;
BEGIN
  IF current_setting('server_version_num')::integer < 150000 THEN
    RAISE EXCEPTION 'locks need PostgreSQL 15 or later, this is %',
      current_setting('server_version') USING ERRCODE = 'feature_not_supported';
  END IF;
  IF getdatabaseencoding() <> 'UTF8' THEN
    RAISE EXCEPTION 'the encoding of the database % is %: names of locks need UTF8',
      current_database(), getdatabaseencoding() USING ERRCODE = 'feature_not_supported';
  END IF;
  SELECT n.nspname INTO _there FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass('lockstile_token') AND n.nspname <> current_schema();
  IF FOUND THEN
    RAISE EXCEPTION 'the locks are in the schema %, which this search path has after %: a second set would exclude nobody who uses the first',
      _there, current_schema() USING ERRCODE = 'duplicate_table', HINT = 'Set search_path.';
  END IF;
END $$;
`

// A lease's row is there while it is held or reserved for a waiter, and after its end
// until somebody needs it or sweeps it away. Waiters are not logged: who finds itself
// forgotten after a crash of the server comes again, with its ticket. A mark says that
// requests with this value are refused, or that its lease was taken from it by force.
//
// The sequence ends where the last of 1,024 tokens still fits a bigint.
const schemaTables = `
CREATE SEQUENCE IF NOT EXISTS lockstile_token MAXVALUE 9007199254740991 NO CYCLE;

CREATE TABLE IF NOT EXISTS lockstile_lease (
  name     text COLLATE "C" PRIMARY KEY,
  value    text NOT NULL,
  reserved boolean NOT NULL,
  token    bigint NOT NULL,
  holder   text NOT NULL,
  expires  timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_queue (
  name    text COLLATE "C" NOT NULL,
  ticket  bigint NOT NULL,
  value   text COLLATE "C" NOT NULL,
  channel text NOT NULL,
  patient timestamptz NOT NULL,
  PRIMARY KEY (name, ticket, value)
);

CREATE TABLE IF NOT EXISTS lockstile_mark (
  value  text COLLATE "C" PRIMARY KEY,
  forced boolean NOT NULL,
  until  timestamptz NOT NULL
);
`

// schemaEncoding refuses sessions for which the bytes of a name are other
// characters than for everybody else: one name would be two locks. The server
// takes those of SQL_ASCII as they are.
const schemaEncoding = `
  IF current_setting('client_encoding') NOT IN ('UTF8', 'SQL_ASCII') THEN
    RAISE EXCEPTION 'names of locks need UTF8, the encoding of this session is %: set client_encoding',
      current_setting('client_encoding') USING ERRCODE = 'feature_not_supported';
  END IF;`

// schemaReads refuses isolation levels in which a statement does not see what was
// committed while it waited for a lock.
const schemaReads = schemaEncoding + `
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'locks need the isolation level "read committed", this is "%": set default_transaction_isolation',
      current_setting('transaction_isolation') USING ERRCODE = 'feature_not_supported';
  END IF;`

// schemaSync makes the commit of this transaction wait for the disk, and for the
// synchronous standby where there is one: a token or a lease that a crash could
// take back must not be handed out.
const schemaSync = `
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;`

// schemaLazy has it wait for neither: what is given back, reserved or queued need not
// outlast a crash.
const schemaLazy = `
  _set := set_config('synchronous_commit', 'off', true);`
