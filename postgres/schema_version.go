package postgres

// schemaVersion is the version of this program's schema. It goes up with every change
// that an earlier program would not understand. The functions that programs call have
// it in their names, so a program finds none in a schema of another version: it is
// refused at once, also in the midst of its work, and no request is spent on asking.
const schemaVersion = "5"

// schemaUpgrade refuses to lower the version. To raise it, it drops all functions of the
// old version: names and results may differ. Before version 3 a lock had one holder, before version 4
// the functions found what they use through the search path, and before version 5 leases did not exclude advisory locks.
const schemaUpgrade = `
DO $$
DECLARE
  _version integer := 0;
  _old regprocedure;
BEGIN
  IF to_regprocedure('lockstile_version()') IS NOT NULL THEN
    _version := lockstile_version();
  ELSIF to_regclass('lockstile_token') IS NOT NULL THEN
    RAISE EXCEPTION 'the sequence of tokens was made by a program that was never published: drop it, and the tables of the locks, when nobody holds one'
      USING ERRCODE = 'duplicate_table';
  END IF;
  IF _version > ` + schemaVersion + ` THEN
    RAISE EXCEPTION 'the schema has version %, and this program is older: it knows version ` + schemaVersion + `', _version
      USING ERRCODE = 'feature_not_supported';
  END IF;
  IF _version < ` + schemaVersion + ` THEN
    FOR _old IN SELECT p.oid FROM pg_proc p WHERE p.proname LIKE 'lockstile\_%'
      AND p.pronamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = (parse_ident('lockstile_version'))[1]) -- carried out with the schema before the name
    LOOP
      EXECUTE format('DROP FUNCTION %s', _old);
    END LOOP;
  END IF;
  IF _version BETWEEN 1 AND 2 THEN
    ALTER TABLE lockstile_lease ADD slots integer NOT NULL DEFAULT 0, ADD slot integer NOT NULL DEFAULT 0,
      ALTER value TYPE text COLLATE "C", DROP CONSTRAINT lockstile_lease_pkey, ADD PRIMARY KEY (name, value);
    ALTER TABLE lockstile_queue ADD slots integer NOT NULL DEFAULT 0;
  END IF;
  IF _version < 5 THEN
    DROP TABLE IF EXISTS lockstile_session; -- it says nothing of locks, and is made again
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_version() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT ` + schemaVersion + ` $$;
`
