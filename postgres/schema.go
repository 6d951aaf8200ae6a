package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
)

// Schema is what the locks need in the database: a sequence, a few tables and the
// functions that work on them. Applying it again changes nothing, so it can
// be a migration of your own; EnsureSchema applies it. It is one statement.
//
// Everything is made in the first schema of the search path, where programs must also
// find it later. It is an error if the search path has it in another schema already.
// Two schemas of one database can each have a set of their own, for programs that have
// nothing in common: leases of one do not exclude those of the other, and tokens of one
// do not compare with those of the other. The advisory locks of [NewSession] and
// [LockTx] are the database's: they exclude each other, and while one has a name, no set grants it a lease. But each
// looks for leases in its own set alone.
//
// Let nobody else create anything in that schema, or in one that the search path has before
// it: programs could find a table or a function of a stranger's in place of ours. The server's
// own operators and functions are found in pg_catalog alone, whatever the search path is. The
// functions name the schema that they are in: apply Schema again when it was renamed.
//
// A role that only locks needs SELECT, INSERT, UPDATE and DELETE on the tables
// lockstile_lease, lockstile_queue, lockstile_mark, lockstile_session, lockstile_known and
// lockstile_drawn, and SELECT and USAGE on the sequence lockstile_token. Never set or alter that
// sequence: tokens are drawn from it.
//
// Logical replication copies no sequences. After an upgrade that way, apply Schema again before
// programs lock on the new server: it lifts the sequence above all tokens that are known to have
// been drawn. Until then no lock is granted there. This is not noticed if the old server had a
// Schema before version 4, if fewer than 32 locks were granted after the sequence was copied by
// other means, or if all were taken by [LockTx] in serializable transactions. After CREATE DATABASE
// with a TEMPLATE that has locks, run CHECKPOINT before programs lock in the copy: until then a
// crash may give out its first tokens again.
//
// The schema has a version. A program with an older Schema is refused, with an error that
// says so, and cannot lower the version. A program with a newer Schema is refused until
// its Schema has been applied.
const Schema = schemaBegin + schemaUpgrade + schemaTables + schemaDrawn + schemaQueue + schemaLease + schemaSession + schemaTx + schemaEnd

// ensureSchema applies Schema over a connection of the pool.
func ensureSchema(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, Schema); err != nil {
		return fmt.Errorf("postgres: apply the schema: %w: %w", locker.ErrUnavailable, classify(err))
	}
	return nil
}

// schemaBegin lets one program at a time apply the schema, and refuses a server or a place that
// will not do.
//
// A stranger who may create something in a schema of the search path could make an operator or a
// function that the server finds in place of its own. It would run with the rights of whoever
// locks, and could make two believe. Four rules keep it out:
//   - Here the search path is pg_catalog as soon as the place is known. What stands between
//     schemaBegin and schemaEnd is carried out with the schema's name before each lockstile_ name.
//   - Functions that programs call set their search path ([schemaSafe]). Others inherit it.
//   - A call of our own function has all its arguments, each of exactly the declared type.
//   - A statement that programs send names the schema of each type, function and operator.
const schemaBegin = `
DO $lockstile$
DECLARE
  _path pg_catalog.text;
  _here pg_catalog.name;
  _found pg_catalog.regclass;
  _there pg_catalog.name;
  _what pg_catalog.text;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock(1819239275, 0);
  _path := pg_catalog.current_setting('search_path');
  _here := pg_catalog.current_schema();
  _found := pg_catalog.to_regclass('lockstile_token');
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

  IF current_setting('server_version_num')::integer < 150000 THEN
    RAISE EXCEPTION 'locks need PostgreSQL 15 or later, this is %',
      current_setting('server_version') USING ERRCODE = 'feature_not_supported';
  END IF;
  IF getdatabaseencoding() <> 'UTF8' THEN
    RAISE EXCEPTION 'the encoding of the database % is %: names of locks need UTF8',
      current_database(), getdatabaseencoding() USING ERRCODE = 'feature_not_supported';
  END IF;
  IF _here IS NULL OR _here ~ E'[''$\\\\]' THEN
    RAISE EXCEPTION 'locks cannot be in the first schema of the search path "%": it is not there, or has a quote, a dollar sign or a backslash in its name',
      _path USING ERRCODE = 'invalid_schema_name';
  END IF;
  SELECT n.nspname INTO _there FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = _found AND n.nspname <> _here;
  IF FOUND THEN
    RAISE EXCEPTION 'the locks are in the schema %, which this search path has after %: a second set would exclude nobody who uses the first',
      _there, _here USING ERRCODE = 'duplicate_table', HINT = 'Set search_path.';
  END IF;
  SELECT n.nspname INTO _there FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = 'lockstile_token' AND NOT has_schema_privilege(n.oid, 'USAGE')
      AND n.nspname IN (SELECT replace(btrim(p, ' "'), '$user', current_user) FROM unnest(string_to_array(_path, ',')) p);
  IF FOUND THEN
    RAISE EXCEPTION 'the locks are in the schema %, which this search path has, and the role % may not use: a second set would exclude nobody who uses the first',
      _there, current_user USING ERRCODE = 'feature_not_supported';
  END IF;
  SELECT o.what, pg_get_userbyid(o.owner) INTO _what, _there FROM (
      SELECT 'table or sequence ' || c.relname, c.relowner, c.relnamespace FROM pg_class c WHERE c.relname LIKE 'lockstile%' AND c.relkind <> 'i'
      UNION ALL SELECT 'function ' || p.oid::regprocedure, p.proowner, p.pronamespace FROM pg_proc p WHERE p.proname LIKE 'lockstile%') o(what, owner, place)
    JOIN pg_namespace n ON n.oid = o.place AND n.nspname = _here JOIN pg_roles r ON r.oid = o.owner
    WHERE NOT r.rolsuper AND r.rolname <> current_user AND o.owner <> n.nspowner
      AND o.owner NOT IN (SELECT c.relowner FROM pg_class c WHERE c.oid = _found);
  IF FOUND THEN
    RAISE EXCEPTION 'the % was made by %, who could do with locks what it wants: drop it, or have the owner of the locks own it', _what, _there
      USING ERRCODE = 'feature_not_supported';
  END IF;

  EXECUTE regexp_replace($schema$
`

// schemaEnd leaves alone what ends with _pkey: it is the name of a constraint, which is in no schema.
const schemaEnd = `$schema$, E'\\mlockstile_(?!\\w*_pkey)', quote_ident(_here) || '.lockstile_', 'g');
  PERFORM set_config('search_path', _path, true);
END $lockstile$`

// schemaSafe is a part of each function that programs call.
const schemaSafe = ` SET search_path = pg_catalog, pg_temp`

// A lease has a row while it is held or reserved for a waiter, and after its end until
// the name is locked again or the row is swept away. A name has several rows if the lock
// is shared, or if it has slots: that they go together is what lockstile_room sees to, while
// lockstile_enter keeps everybody else away. The queue is not logged: a waiter
// that a crash of the server has removed asks again, with its ticket. A mark says that
// requests with this value are refused, or that its lease was taken from it by force.
//
// All tokens come from one logged sequence, 1,024 for each number, so all tokens of the
// next draw are greater. A number is drawn where exclusion is already certain: others who
// draw for the same name are kept out until this transaction has committed. The sequence
// ends, with an error, where the last of 1,024 tokens still fits a bigint.
//
// A sequence is not undone with its transaction, and the server logs 32 numbers at
// once. So a draw may leave nothing in the log, and what another transaction has left
// there may not be on disk yet: a crash would then give the number out again. A token may
// be returned once a transaction has written something to the log after the draw, and
// has committed with a wait for the disk ([schemaSync]): a row of a logged table, or a
// message (pg_logical_emit_message).
//
// Logical replication copies tables and no sequences: after an upgrade that way the sequence begins
// anew, and so would tokens. So one number in 32 is noted in a table, lockstile_drawn, and no
// token is drawn from a sequence that has not come as far ([schemaDraw]). Schema lifts it then.
const schemaTables = `
CREATE SEQUENCE IF NOT EXISTS lockstile_token MAXVALUE 9007199254740991 NO CYCLE;

CREATE TABLE IF NOT EXISTS lockstile_lease (
  name     text COLLATE "C" NOT NULL,
  value    text COLLATE "C" NOT NULL,
  reserved boolean NOT NULL,
  token    bigint NOT NULL,
  holder   text NOT NULL,
  expires  timestamptz NOT NULL,
  slots    integer NOT NULL DEFAULT 0,
  slot     integer NOT NULL DEFAULT 0,
  PRIMARY KEY (name, value)
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_queue (
  name    text COLLATE "C" NOT NULL,
  ticket  bigint NOT NULL,
  value   text COLLATE "C" NOT NULL,
  channel text NOT NULL,
  patient timestamptz NOT NULL,
  slots   integer NOT NULL DEFAULT 0,
  PRIMARY KEY (name, ticket, value)
);

CREATE TABLE IF NOT EXISTS lockstile_drawn (
  upto bigint PRIMARY KEY
);

CREATE TABLE IF NOT EXISTS lockstile_mark (
  value  text COLLATE "C" PRIMARY KEY,
  forced boolean NOT NULL,
  until  timestamptz NOT NULL
);
`

// schemaDraw draws a number for a statement. It draws none if the sequence has not come as far as
// was noted.
const schemaDraw = ` FROM lockstile_token t WHERE t.last_value - (NOT t.is_called)::integer >= coalesce((SELECT max(d.upto) FROM lockstile_drawn d), 0)`

// schemaNote has what was drawn noted, now and then.
const schemaNote = `
  IF _token IS NULL OR _token / 1024 % 32 = 1 THEN
    PERFORM lockstile_note(_token);
  END IF;`

// lockstile_note notes the number of a token that was drawn, or says why none was. Each number has a
// row of its own: a transaction that goes on for hours keeps nobody waiting. Serializable
// transactions note none: two of them could fail because of it. What follows lifts a sequence
// that has gone back.
const schemaDrawn = `
CREATE OR REPLACE FUNCTION lockstile_note(_token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF _token IS NULL THEN
    RAISE EXCEPTION 'the sequence of tokens has gone back, as after an upgrade by logical replication, which copies no sequences: '
      'apply Schema again, or open with schema=ensure, as its owner' USING ERRCODE = 'feature_not_supported';
  ELSIF current_setting('transaction_isolation') <> 'serializable' THEN
    INSERT INTO lockstile_drawn (upto) VALUES (_token / 1024);
  END IF;
END $$;

DO $$
DECLARE
  _upto bigint := greatest((SELECT max(d.upto) FROM lockstile_drawn d), (SELECT max(l.token) / 1024 FROM lockstile_lease l));
BEGIN
  IF EXISTS (SELECT FROM lockstile_token t WHERE t.last_value - (NOT t.is_called)::integer < _upto) THEN
    PERFORM setval('lockstile_token', _upto + 1000000); -- more than were drawn since a number was noted
  END IF;
  INSERT INTO lockstile_drawn (upto) SELECT t.last_value - (t.last_value % 32 = 1)::integer FROM lockstile_token t -- nobody else notes this one: no wait
    WHERE t.is_called AND NOT EXISTS (SELECT FROM lockstile_drawn) ON CONFLICT DO NOTHING;
END $$;
`

// schemaEncoding refuses sessions that read other characters in the bytes of a name:
// one name would be two locks. In SQL_ASCII the server takes the bytes as they are.
const schemaEncoding = `
  IF current_setting('client_encoding') NOT IN ('UTF8', 'SQL_ASCII') THEN
    RAISE EXCEPTION 'names of locks need UTF8, the encoding of this session is %: set client_encoding',
      current_setting('client_encoding') USING ERRCODE = 'feature_not_supported';
  END IF;`

// schemaReads refuses isolation levels in which a statement does not see what was
// committed while it waited for a lock. It also refuses a standby, and a session that is
// read-only, before it says of some lock that it is taken.
const schemaReads = schemaEncoding + `
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'locks need the isolation level "read committed", this is "%": set default_transaction_isolation',
      current_setting('transaction_isolation') USING ERRCODE = 'feature_not_supported';
  END IF;
  IF current_setting('transaction_read_only') = 'on' THEN
    RAISE EXCEPTION 'locks are not kept in a read-only transaction' USING ERRCODE = 'read_only_sql_transaction';
  END IF;`

// schemaSync makes the commit of this transaction wait for the disk, and for the
// synchronous standby where there is one: a token or a lease that a crash could
// take back must not be handed out.
const schemaSync = `
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;`

// schemaLazy makes it wait for neither: what is given back, reserved or queued need not
// outlast a crash.
const schemaLazy = `
  _set := set_config('synchronous_commit', 'off', true);`

// schemaStandby refuses a server that is not what [Options].SyncStandby says. It leaves a standby,
// which has no such setting, to schemaReads: that passes by itself.
const schemaStandby = `
  IF _synced AND current_setting('synchronous_standby_names') = '' AND current_setting('transaction_read_only') = 'off' THEN
    RAISE EXCEPTION 'SyncStandby is set, but the server has no synchronous_standby_names' USING ERRCODE = 'feature_not_supported';
  END IF;`
