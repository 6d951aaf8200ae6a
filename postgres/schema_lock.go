package postgres

// lockstile_acquire answers the token of the grant, or 0 if somebody else has
// the lock, with the milliseconds after which to look again, how many wait before
// us and our ticket; or -1 if the value was withdrawn.
//
// It draws first: when nobody else deals with the name any more and no row is
// locked yet. Where there is no grant, what was drawn is the ticket.
//
// The usual case comes next: nobody has the lock and nobody waits. Otherwise the
// row is read FOR UPDATE, so that a renewal which has not committed yet is waited
// for and not overlooked (the grant waits for it too). Asked again with the value that has the lease,
// it answers the same token and starts the lease anew, for the caller may count
// its validity from the second request.
//
// An advisory lock is held by whom the server says, not by whom the row says, and
// pg_try_advisory_lock alone decides. The queue comes after it: nothing may be
// reserved for the first waiter while the lock is still held.
//
// lockstile_patience is how long the server keeps the connection of a session
// that says nothing: it is set with the grant, in one statement, so that no lock
// is ever without it.
const schemaAcquire = `
CREATE OR REPLACE FUNCTION lockstile_patience(_patience bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN set_config('idle_session_timeout', _patience::text, false);
END $$;

CREATE OR REPLACE FUNCTION lockstile_acquire(_session boolean, _name text, _value text, _ttl bigint, _holder text,
  _queue boolean, _channel text, _patience bigint, INOUT _ticket bigint,
  OUT _token bigint, OUT _left bigint, OUT _ahead bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _done text := lockstile_enter(_name, true);
  _free boolean := NOT _session OR pg_try_advisory_lock(pg_catalog.hashtextextended(_name, 0));
  _drawn bigint := lockstile_draw(true);
  _lock lockstile_lock;
  _first text;
  _mine boolean;
  _busy boolean;
BEGIN
  _left := 0;
  _ahead := 0;
  IF _free THEN
    _token := lockstile_grant(_session, _name, _value, _ttl, _holder, _drawn, false);
    IF _token IS NOT NULL THEN
      IF _session THEN
        _done := lockstile_patience(_patience);
      END IF;
      RETURN;
    END IF;
  END IF;

  SELECT * INTO _lock FROM lockstile_lock l WHERE l.name = _name AND l.session = _session FOR UPDATE;
  _mine := FOUND AND _lock.value = _value;
  IF _mine AND NOT _lock.reserved AND NOT _session THEN
    UPDATE lockstile_lock l SET expires = clock_timestamp() + _ttl * interval '1 millisecond'
      WHERE l.name = _name AND l.session = _session;
    _token := _lock.token;
    RETURN;
  END IF;
  IF EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value) THEN
    IF _session AND _free THEN
      PERFORM pg_advisory_unlock(pg_catalog.hashtextextended(_name, 0));
    END IF;
    _token := -1;
    RETURN;
  END IF;

  _busy := _lock.name IS NOT NULL AND NOT _mine AND _lock.expires > clock_timestamp() AND (_lock.reserved OR NOT _session);
  IF NOT _busy AND NOT _free THEN -- by its holder, or by somebody who knows nothing of the queue
    _busy := true;
    DELETE FROM lockstile_lock l WHERE l.name = _name AND l.session = _session AND l.reserved;
  END IF;
  IF NOT _busy AND NOT _mine THEN
    SELECT w.value INTO _first FROM lockstile_waiter w
      WHERE w.name = _name AND w.session = _session ORDER BY w.ticket LIMIT 1;
    IF FOUND AND _first <> _value THEN
      _first := lockstile_pass(_session, _name, _channel);
      _busy := _first IS NOT NULL AND _first <> _value;
    END IF;
  END IF;
  IF NOT _busy THEN
    DELETE FROM lockstile_waiter w WHERE w.name = _name AND w.session = _session AND w.value = _value;
    _token := lockstile_grant(_session, _name, _value, _ttl, _holder, _drawn, true);
    IF _session THEN
      _done := lockstile_patience(_patience);
    END IF;
    RETURN;
  END IF;
  IF _session AND _free THEN
    PERFORM pg_advisory_unlock(pg_catalog.hashtextextended(_name, 0));
  END IF;

  _token := 0;
  SELECT ceil(extract(epoch FROM l.expires - clock_timestamp()) * 1000) INTO _left FROM lockstile_lock l
    WHERE l.name = _name AND l.session = _session AND (l.reserved OR NOT _session);
  _left := greatest(coalesce(_left, 500), 0);
  IF _queue THEN
    IF _ticket = 0 THEN
      _ticket := _drawn;
    END IF;
    SELECT count(*) INTO _ahead FROM lockstile_waiter w
      WHERE w.name = _name AND w.session = _session AND w.ticket < _ticket;
    INSERT INTO lockstile_waiter AS w (name, session, ticket, value, channel, patient)
    VALUES (_name, _session, _ticket, _value, _channel,
      clock_timestamp() + (CASE WHEN _channel = '' THEN _patience ELSE _left + _ahead * 500 + 60000 END) * interval '1 millisecond')
    ON CONFLICT (name, session, ticket) DO UPDATE SET channel = excluded.channel, patient = excluded.patient;
  END IF;
END $$;
`

// lockstile_release answers 0 if the lock was given back, the next value's token
// if it was handed over to that, and -1 or -2 (forced) if it was not ours. With
// _yield, other processes that wait go before _next. A _next that was withdrawn
// before this request arrived gets nothing.
//
// A release need not survive a crash: what it left would end with its lease. So
// nobody waits for the disk, except where a lease is started. With _quick that
// does not wait either, if there is no standby to wait for: the heir's process
// promises to believe no longer than in the lease that is on disk. A crash may
// bring that one back, and until its end the lock is nobody else's. Its holder is
// known to nobody any more, so an heir's release removes it too: the tokens from
// _behind, that lease's, up to _mine were all given out in the heir's line.
//
// lockstile_withdraw removes whatever an attempt may have left: its place in the
// queue, a reservation, the lock. The mark refuses its request if that is still
// on the way, over a connection that is slower than this one. With _spare, a lock
// that is held is left alone. _unlock says that the advisory lock may be this
// connection's, for this attempt.
//
// lockstile_unlock frees the advisory lock of a value whose row may be gone. All
// locks of a Locker are on one connection, and the server counts them together:
// if the row has it under another value, or a row has another name with the same
// key, it is that one's, and stays.
const schemaRelease = `
CREATE OR REPLACE FUNCTION lockstile_give(_session boolean, _name text, _channel text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF lockstile_pass(_session, _name, _channel) IS NULL THEN
    DELETE FROM lockstile_lock l WHERE l.name = _name AND l.session = _session;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_unlock(_name text, _value text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _key bigint := pg_catalog.hashtextextended(_name, 0);
  _held text;
BEGIN
  SELECT l.value INTO _held FROM lockstile_lock l
    WHERE l.name = _name AND l.session AND NOT l.reserved AND l.pid = pg_backend_pid();
  IF _held <> _value OR _held IS NULL AND EXISTS (SELECT FROM lockstile_lock l WHERE l.session
    AND NOT l.reserved AND l.pid = pg_backend_pid() AND pg_catalog.hashtextextended(l.name, 0) = _key) THEN
    RETURN false;
  END IF;
  RETURN pg_advisory_unlock(_key);
END $$;

CREATE OR REPLACE FUNCTION lockstile_mark(_value text, _forced boolean, _remember bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lockstile_mark AS m (value, forced, until)
  VALUES (_value, _forced, clock_timestamp() + _remember * interval '1 millisecond')
  ON CONFLICT (value) DO UPDATE SET forced = m.forced OR excluded.forced, until = greatest(m.until, excluded.until);
END $$;

CREATE OR REPLACE FUNCTION lockstile_release(_session boolean, _name text, _value text, _channel text, _remember bigint,
  _next text, _ttl bigint, _holder text, _yield boolean, _patience bigint, _quick boolean,
  _behind bigint, _mine bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _done text := lockstile_enter(_name, _remember > 0 OR _next <> ''
    AND (NOT _quick OR current_setting('synchronous_standby_names') <> ''));
  _drawn bigint := CASE WHEN _next <> '' THEN lockstile_draw(true) END;
  _lock lockstile_lock;
  _token bigint;
  _waited boolean;
  _back boolean;
BEGIN
  IF _next <> '' THEN
    UPDATE lockstile_lock l SET value = _next, token = _drawn, holder = _holder, ttl = _ttl, pid = pg_backend_pid(),
      expires = CASE WHEN _session THEN 'infinity' ELSE clock_timestamp() + _ttl * interval '1 millisecond' END
    WHERE l.name = _name AND l.session = _session AND l.value = _value AND NOT l.reserved
      AND NOT EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _next)
      AND NOT (_yield AND EXISTS (SELECT FROM lockstile_waiter w WHERE w.name = _name AND w.session = _session))
    RETURNING l.token INTO _token;
  END IF;
  IF _token IS NULL THEN
    DELETE FROM lockstile_lock l WHERE l.name = _name AND l.session = _session AND l.value = _value AND NOT l.reserved
      AND NOT EXISTS (SELECT FROM lockstile_waiter w WHERE w.name = _name AND w.session = _session);
    _waited := NOT FOUND;
  END IF;
  IF _waited THEN
    SELECT * INTO _lock FROM lockstile_lock l WHERE l.name = _name AND l.session = _session FOR UPDATE;
    _back := FOUND AND NOT _session AND NOT _lock.reserved AND _behind > 0 AND _lock.token >= _behind AND _lock.token < _mine;
    IF NOT _back AND (_lock.name IS NULL OR _lock.value <> _value OR _lock.reserved) THEN
      IF _next <> '' AND _lock.value = _next AND NOT _lock.reserved AND NOT _session THEN
        RETURN _lock.token;
      END IF;
      IF _session AND lockstile_unlock(_name, _value) THEN
        _done := lockstile_patience(_patience);
        RETURN 0;
      END IF;
      RETURN CASE WHEN EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value AND m.forced) THEN -2 ELSE -1 END;
    END IF;
  END IF;
  IF _session THEN
    _done := lockstile_patience(_patience);
  END IF;
  IF _remember > 0 THEN
    PERFORM lockstile_mark(_value, false, _remember);
  END IF;
  IF _token IS NOT NULL THEN
    RETURN _token;
  END IF;
  IF _session AND NOT pg_advisory_unlock(pg_catalog.hashtextextended(_name, 0)) THEN
    RETURN -1;
  END IF;
  IF _waited THEN
    PERFORM lockstile_give(_session, _name, _channel);
  END IF;
  RETURN 0;
END $$;

CREATE OR REPLACE FUNCTION lockstile_withdraw(_session boolean, _name text, _value text, _channel text, _remember bigint,
  _spare boolean, _unlock boolean)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lockstile_enter(_name, true);
  DELETE FROM lockstile_waiter w WHERE w.name = _name AND w.session = _session AND w.value = _value;
  IF _remember > 0 THEN
    PERFORM lockstile_mark(_value, false, _remember);
  END IF;
  IF _unlock THEN
    PERFORM lockstile_unlock(_name, _value);
  END IF;
  PERFORM FROM lockstile_lock l WHERE l.name = _name AND l.session = _session
    AND l.value = _value AND (l.reserved OR NOT _spare) FOR UPDATE;
  IF FOUND THEN
    PERFORM lockstile_give(_session, _name, _channel);
  END IF;
END $$;
`

// lockstile_lock_tx draws its token after the lock is there, in the transaction
// that holds it.
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
CREATE OR REPLACE FUNCTION lockstile_lock_tx(_name text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN` + schemaEncoding + `
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  PERFORM pg_advisory_xact_lock(pg_catalog.hashtextextended(_name, 0));
  RETURN lockstile_draw(false);
END $$;

CREATE OR REPLACE FUNCTION lockstile_renew(_names text[], _values text[], _ttls bigint[])
RETURNS TABLE (place bigint, code integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM lockstile_durable(true);
  PERFORM FROM unnest(_names, _values) AS a(name, value)
    JOIN lockstile_lock l ON l.name = a.name AND NOT l.session AND l.value = a.value
    ORDER BY l.name FOR UPDATE OF l;
  RETURN QUERY
    WITH asked AS (
      SELECT a.* FROM unnest(_names, _values, _ttls) WITH ORDINALITY AS a(name, value, ttl, place)
    ), renewed AS (
      UPDATE lockstile_lock l SET expires = clock_timestamp() + a.ttl * interval '1 millisecond'
      FROM asked a WHERE l.name = a.name AND NOT l.session AND l.value = a.value
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
  SELECT * INTO _lock FROM lockstile_lock l WHERE l.name = _name AND NOT l.session FOR UPDATE;
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
