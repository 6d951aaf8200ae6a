package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

// schemaVersion is what this program's schema is. It goes up with every change
// that a program of before would not understand. Functions that programs call have
// it in their names, so that a schema of another version has none for them: they are
// refused without a question of their own, also in the midst of their work.
const schemaVersion = "1"

// schemaUpgrade refuses to lower the version, and clears the way for raising it: what
// the functions of a version are called and return is its own business.
const schemaUpgrade = `
DO $$
DECLARE
  _version integer := 0;
  _old regprocedure;
BEGIN
  IF to_regprocedure('lockstile_version()') IS NOT NULL THEN
    _version := lockstile_version();
  ELSIF to_regclass('lockstile_token') IS NOT NULL THEN
    RAISE EXCEPTION 'the sequence lockstile_token was made by a program that was never published: drop it, and the tables whose names begin with lockstile_, when nobody holds a lock'
      USING ERRCODE = 'duplicate_table';
  END IF;
  IF _version > ` + schemaVersion + ` THEN
    RAISE EXCEPTION 'the schema has version %, and this program is older: it knows version ` + schemaVersion + `', _version
      USING ERRCODE = 'feature_not_supported';
  END IF;
  IF _version < ` + schemaVersion + ` THEN
    FOR _old IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident(current_schema()))
      AND p.proname LIKE 'lockstile\_%'
    LOOP
      EXECUTE format('DROP FUNCTION %s', _old);
    END LOOP;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_version() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT ` + schemaVersion + ` $$;
`

// explain asks for the version of a schema that has not what was asked of it.
func (p *poolRunner) explain(ctx context.Context, err error) error {
	var reply *pgconn.PgError
	if !errors.As(err, &reply) || reply.Code != "42883" && reply.Code != "42P01" {
		return err
	}
	var there int
	if p.pool.QueryRow(ctx, `SELECT lockstile_version()`, p.mode).Scan(&there) != nil || strconv.Itoa(there) == schemaVersion {
		return err
	}
	return &versionError{there, err}
}

// versionError says that the schema is another program's.
type versionError struct {
	there int
	err   error
}

func (e *versionError) Unwrap() error { return e.err }

func (e *versionError) Error() string {
	if ours, _ := strconv.Atoi(schemaVersion); e.there > ours {
		return fmt.Sprintf("the schema has version %d, and this program is older: it knows version %s", e.there, schemaVersion)
	}
	return fmt.Sprintf("the schema has version %d, this program needs version %s: call EnsureSchema or apply Schema", e.there, schemaVersion)
}
