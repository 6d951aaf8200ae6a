package postgres

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
