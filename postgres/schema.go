package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
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
// lockstile_lock, lockstile_lease, lockstile_session, lockstile_waiter
// and lockstile_mark, and SELECT and USAGE on the sequence
// lockstile_token. Never set or alter that, for tokens are drawn from it, and leave
// what is unlogged unlogged.
//
// It has a version. A program of an earlier version is refused from then on, in words
// that say so, and cannot lower it; one of a later version is refused until it has
// been raised.
const Schema = schemaPlace + schemaUpgrade + schemaTables + schemaToken + schemaRules + schemaWait + schemaLease + schemaSession + schemaCare

// ensureSchema applies Schema over a connection of the pool. Without arguments
// pgx sends it as one message, which the server carries out as one transaction.
func ensureSchema(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, Schema); err != nil {
		return fmt.Errorf("postgres: apply the schema: %w", classify(err))
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

// A lock's row is there while it is held or reserved for a waiter. The columns
// "session" keep leases and advisory locks of the same name apart: lockstile_lock
// is both, for those who look after either kind or look on. What is done with
// every lock names the one table it means. The server would plan it anew each time
// if it had to find out, and if it did not see that a name has one row: that is
// why the key is the tables' own. The rows of advisory locks are not logged, for a
// crash of the server ends these locks. Nor are waiters: they come again, with
// their tickets. A mark says that requests with this value must be refused.
//
// The sequence ends where the last of 1,024 tokens still fits a bigint.
const schemaTables = `
CREATE SEQUENCE IF NOT EXISTS lockstile_token MAXVALUE 9007199254740991 NO CYCLE;

CREATE TABLE IF NOT EXISTS lockstile_lock (
  name     text COLLATE "C" NOT NULL,
  session  boolean NOT NULL,
  value    text NOT NULL,
  reserved boolean NOT NULL,
  token    bigint,
  holder   text NOT NULL,
  ttl      bigint,
  expires  timestamptz NOT NULL,
  pid      integer
) PARTITION BY LIST (session);

CREATE TABLE IF NOT EXISTS lockstile_lease PARTITION OF lockstile_lock (PRIMARY KEY (name))
  FOR VALUES IN (false) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_session PARTITION OF lockstile_lock (PRIMARY KEY (name))
  FOR VALUES IN (true) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_waiter (
  name    text COLLATE "C" NOT NULL,
  session boolean NOT NULL,
  ticket  bigint NOT NULL,
  value   text NOT NULL,
  channel text NOT NULL,
  patient timestamptz NOT NULL,
  PRIMARY KEY (name, session, ticket)
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

// schemaDurable does the same, or asked not to, has the commit wait for neither.
// It also refuses isolation levels in which a statement does not see what was
// committed while it waited for a lock.
const schemaDurable = schemaEncoding + `
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'locks need the isolation level "read committed", this is "%": set default_transaction_isolation',
      current_setting('transaction_isolation') USING ERRCODE = 'feature_not_supported';
  END IF;
  IF NOT _durable THEN
    _set := set_config('synchronous_commit', 'off', true);
  ELSE` + schemaSync + `
  END IF;`

// Functions that are called with every lock return something, so that they can be
// part of an expression: PERFORM would cost as much as they do.
//
// lockstile_enter lets one transaction at a time deal with a name. It is what
// makes a grant and its token one step: whoever comes later sees the row that
// was written before, and draws a greater token.
//
// lockstile_alive tells a waiter whose process listens, or polled a while ago,
// from one that is gone: every listening connection holds an advisory lock, for
// as long as it lives. A waiter on the asking connection itself is alive (a
// session's own locks never stand in its way).
//
// lockstile_pass reserves a lock that becomes free for the first waiter that is
// alive, returns its value (null: nobody waits), and tells that waiter's process
// alone. One that does not claim the lock in time loses its turn, and so that
// somebody notices, the second in line is told to look again by then.
const schemaRules = `
CREATE OR REPLACE FUNCTION lockstile_durable(_durable boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _set text;
BEGIN` + schemaDurable + `
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION lockstile_enter(_name text, _durable boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _set text;
BEGIN` + schemaDurable + `
  RETURN pg_advisory_xact_lock(1819239275, hashtext(_name)) IS NOT NULL;
END $$;

CREATE OR REPLACE FUNCTION lockstile_alive(_channel text, _patient timestamptz, _own text)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN _patient > clock_timestamp() AND (_channel = '' OR _channel = _own
    OR NOT pg_try_advisory_xact_lock_shared(1819239276, hashtext(_channel)));
END $$;

CREATE OR REPLACE FUNCTION lockstile_pass(_session boolean, _name text, _own text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  _first lockstile_waiter;
  _second lockstile_waiter;
BEGIN
  LOOP
    DELETE FROM lockstile_waiter w WHERE w.name = _name AND w.session = _session AND w.ticket =
      (SELECT min(i.ticket) FROM lockstile_waiter i WHERE i.name = _name AND i.session = _session)
    RETURNING * INTO _first;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
    EXIT WHEN lockstile_alive(_first.channel, _first.patient, _own);
  END LOOP;
  UPDATE lockstile_lock l SET value = _first.value, reserved = true, holder = '',
    expires = clock_timestamp() + interval '500 milliseconds', pid = NULL
    WHERE l.name = _name AND l.session = _session;
  IF NOT FOUND THEN
    INSERT INTO lockstile_lock (name, session, value, reserved, holder, expires)
    VALUES (_name, _session, _first.value, true, '', clock_timestamp() + interval '500 milliseconds');
  END IF;
  IF _first.channel <> '' THEN
    PERFORM pg_notify(_first.channel, 'turn ' || _first.value || ' ' || _name);
  END IF;
  SELECT * INTO _second FROM lockstile_waiter w
    WHERE w.name = _name AND w.session = _session ORDER BY w.ticket LIMIT 1;
  IF FOUND AND _second.channel <> '' THEN
    PERFORM pg_notify(_second.channel, 'wait ' || _second.value || ' ' || _name);
  END IF;
  RETURN _first.value;
END $$;
`
