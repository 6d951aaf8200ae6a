package postgres

// lockstile_lock_tx draws its token after the lock is there, in the transaction
// that holds it. The message is for the commit to wait for, where nothing else is written.
//
// lockstile_renew answers, for each place in the arrays, 1 if the lease was
// started anew, else -1 or -2 (forced). Rows are locked in the order of their
// names, so that two batches never wait for each other. A lease that has ended
// is not renewed even if nobody has taken it: its holder may have been told.
//
// lockstile_force takes a lease from its holder and leaves word of it.
//
// lockstile_session_force ends the connection that holds an advisory lock, for
// that is the only way to free it from outside.
//
// lockstile_session_end ends the connection that listens on a channel, and waits
// for a second at most until it is gone.
//
// lockstile_sweep removes what the dead have left under names that nobody uses
// any more. It never waits for a lock.
const schemaCare = `
CREATE OR REPLACE FUNCTION lockstile_lock_tx_` + schemaVersion + `(_name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _token bigint;
BEGIN` + schemaEncoding + `
  PERFORM pg_advisory_xact_lock(pg_catalog.hashtextextended(_name, 0));
  _token := lockstile_draw();
  PERFORM pg_logical_emit_message(true, 'lockstile', '');
  RETURN _token;
END $$;

CREATE OR REPLACE FUNCTION lockstile_renew(_names text[], _values text[], _ttls bigint[])
RETURNS TABLE (place bigint, code integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM lockstile_durable(true);
  PERFORM FROM unnest(_names, _values) AS a(name, value)
    JOIN lockstile_lease l ON l.name = a.name AND l.value = a.value
    ORDER BY l.name FOR UPDATE OF l;
  RETURN QUERY
    WITH asked AS (
      SELECT a.* FROM unnest(_names, _values, _ttls) WITH ORDINALITY AS a(name, value, ttl, place)
    ), renewed AS (
      UPDATE lockstile_lease l SET expires = clock_timestamp() + a.ttl * interval '1 millisecond'
      FROM asked a WHERE l.name = a.name AND l.value = a.value
        AND NOT l.reserved AND l.expires > clock_timestamp()
      RETURNING a.place
    )
    SELECT a.place, CASE WHEN r.place IS NOT NULL THEN 1
      WHEN EXISTS (SELECT FROM lockstile_mark m WHERE m.value = a.value AND m.forced) THEN -2
      ELSE -1 END
    FROM asked a LEFT JOIN renewed r ON r.place = a.place;
END $$;

CREATE OR REPLACE FUNCTION lockstile_force(_name text, _remember bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _lock lockstile_lock;
BEGIN
  PERFORM lockstile_enter(_name, true);
  SELECT * INTO _lock FROM lockstile_lease l WHERE l.name = _name FOR UPDATE;
  IF NOT FOUND OR _lock.reserved OR _lock.expires <= clock_timestamp() THEN
    RETURN false;
  END IF;
  PERFORM lockstile_mark(_lock.value, true, _remember);
  PERFORM lockstile_give(false, _name, '');
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_holder(_name text) RETURNS integer LANGUAGE sql AS $$
  SELECT p.pid FROM pg_locks p, (SELECT pg_catalog.hashtextextended(_name, 0) AS key) k
  WHERE p.locktype = 'advisory' AND p.granted AND p.mode = 'ExclusiveLock' AND p.objsubid = 1
    AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND p.classid::bigint = (k.key >> 32) & 4294967295 AND p.objid::bigint = k.key & 4294967295
  LIMIT 1
$$;

CREATE OR REPLACE FUNCTION lockstile_session_force(_name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _pid integer := lockstile_session_holder(_name);
BEGIN
  RETURN _pid IS NOT NULL AND pg_terminate_backend(_pid);
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_end(_channel text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_terminate_backend(p.pid) FROM pg_locks p
    WHERE p.locktype = 'advisory' AND p.granted AND p.mode = 'ExclusiveLock' AND p.objsubid = 2
    AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND p.classid = 1819239276 AND p.objid::bigint = hashtext(_channel)::bigint & 4294967295;
  PERFORM set_config('lock_timeout', '1000', true);
  PERFORM pg_advisory_xact_lock_shared(1819239276, hashtext(_channel));
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION lockstile_sweep() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _old record;
BEGIN
  DELETE FROM lockstile_mark m WHERE m.value IN (SELECT o.value FROM lockstile_mark o
    WHERE o.until < clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED);
  DELETE FROM lockstile_waiter w WHERE (w.name, w.session, w.ticket) IN (SELECT o.name, o.session, o.ticket
    FROM lockstile_waiter o WHERE o.patient < clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED);
  FOR _old IN SELECT l.name, l.session FROM lockstile_lock l
    WHERE l.expires < clock_timestamp() - interval '1 minute'
      OR (l.session AND NOT l.reserved AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = l.pid))
    LIMIT 1000
  LOOP
    IF pg_try_advisory_xact_lock(1819239275, hashtext(_old.name)) THEN
      DELETE FROM lockstile_lock l WHERE l.name = _old.name AND l.session = _old.session
        AND (l.expires < clock_timestamp() - interval '1 minute'
          OR (l.session AND NOT l.reserved AND lockstile_session_holder(l.name) IS NULL));
    END IF;
  END LOOP;
END $$;
`
