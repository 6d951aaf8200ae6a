package testserver

// HostileSchema makes the schema "hostile", and in it a version of everything that the server
// itself has: each type and each table under its name, each function and each operator with the
// same arguments and results. Whoever meets one of them gets an error that says so, and a sequence counts it.
const HostileSchema = `
CREATE SCHEMA hostile;
CREATE SEQUENCE hostile.called;
CREATE FUNCTION hostile.met() RETURNS boolean LANGUAGE sql AS $$ SELECT pg_catalog.nextval('hostile.called') IS NOT NULL $$;
DO $$
DECLARE
  _one record;
BEGIN
  FOR _one IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result FROM pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind <> 'p' LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION hostile.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', _one.proname,
        replace(_one.arguments, 'ORDER BY', ','), _one.result, 'BEGIN PERFORM pg_catalog.nextval(''hostile.called''); RAISE EXCEPTION ''the hostile function ' || _one.proname || '''; END');
    EXCEPTION WHEN OTHERS THEN -- it has arguments that no SQL can write
    END;
  END LOOP;
  FOR _one IN SELECT o.oprname, o.oprleft, o.oprright, o.oprresult FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION hostile."operator %s"(%s) RETURNS %s LANGUAGE plpgsql AS %L', _one.oprname,
        concat_ws(', ', nullif(_one.oprleft, 0)::regtype, _one.oprright::regtype), _one.oprresult::regtype, 'BEGIN PERFORM pg_catalog.nextval(''hostile.called''); RAISE EXCEPTION ''the hostile operator ' || _one.oprname || '''; END');
      EXECUTE format('CREATE OPERATOR hostile.%s (%s RIGHTARG = %s, FUNCTION = hostile."operator %s")', _one.oprname,
        'LEFTARG = ' || nullif(_one.oprleft, 0)::regtype || ',', _one.oprright::regtype, _one.oprname);
    EXCEPTION WHEN OTHERS THEN
    END;
  END LOOP;
  -- what the server does not have is found before a conversion: the first report was of this one
  CREATE FUNCTION hostile.longer(bigint, interval) RETURNS interval LANGUAGE plpgsql AS 'BEGIN PERFORM pg_catalog.nextval(''hostile.called''); RAISE EXCEPTION ''the hostile operator bigint * interval''; END';
  CREATE OPERATOR hostile.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = hostile.longer);
  FOR _one IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') LOOP
    EXECUTE format('CREATE TABLE hostile.%I ()', _one.relname);
  END LOOP;
  FOR _one IN SELECT t.typname FROM pg_type t WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype = 'b' AND t.typelem = 0 LOOP
    EXECUTE format('CREATE DOMAIN hostile.%I AS pg_catalog.%I CHECK (hostile.met())', _one.typname, _one.typname);
  END LOOP;
END $$`
