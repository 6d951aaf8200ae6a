package postgres

// lockstile_wait is the rest of a request for a lock that could not be granted at
// once. Its caller has entered, and has drawn what now is the token or the ticket.
// _free says that the advisory lock is the caller's, which gives it back where there
// is no grant. Without it nobody is given a turn.
//
// The row is read FOR UPDATE, so that a renewal which has not committed yet is
// waited for and not overlooked (the grant waits for it too). Asked again with the
// value that has the lease, it answers the same token and starts the lease anew,
// for the caller may count its validity from the second request.
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
const schemaWait = `
CREATE OR REPLACE FUNCTION lockstile_wait(_session boolean, _free boolean, _drawn bigint, _name text, _value text, _ttl bigint,
  _holder text, _queue boolean, _channel text, _patience bigint, INOUT _ticket bigint,
  OUT _token bigint, OUT _left bigint, OUT _ahead bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _lock lockstile_lock;
  _first text;
  _mine boolean;
  _busy boolean;
  _ends timestamptz;
BEGIN
  _left := 0;
  _ahead := 0;
  SELECT * INTO _lock FROM lockstile_lock l WHERE l.name = _name AND l.session = _session FOR UPDATE;
  _mine := FOUND AND _lock.value = _value;
  IF _mine AND NOT _lock.reserved AND NOT _session THEN
    UPDATE lockstile_lease l SET expires = clock_timestamp() + _ttl * interval '1 millisecond' WHERE l.name = _name;
    _token := _lock.token;
    RETURN;
  END IF;
  IF EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value) THEN
    _token := -1;
    RETURN;
  END IF;

  _busy := _lock.name IS NOT NULL AND NOT _mine AND _lock.expires > clock_timestamp() AND (_lock.reserved OR NOT _session);
  IF NOT _busy AND NOT _free THEN -- by its holder, or by somebody who knows nothing of the queue
    _busy := true;
    DELETE FROM lockstile_session l WHERE l.name = _name AND l.reserved;
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
    _token := _drawn;
    _ends := CASE WHEN _session THEN 'infinity' ELSE clock_timestamp() + _ttl * interval '1 millisecond' END;
    UPDATE lockstile_lock l SET value = _value, reserved = false, token = _drawn, holder = _holder, ttl = _ttl,
      expires = _ends, pid = pg_backend_pid()
      WHERE l.name = _name AND l.session = _session;
    IF NOT FOUND THEN
      INSERT INTO lockstile_lock (name, session, value, reserved, token, holder, ttl, expires, pid)
      VALUES (_name, _session, _value, false, _drawn, _holder, _ttl, _ends, pg_backend_pid());
    END IF;
    RETURN;
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

CREATE OR REPLACE FUNCTION lockstile_give(_session boolean, _name text, _channel text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF lockstile_pass(_session, _name, _channel) IS NULL THEN
    DELETE FROM lockstile_lock l WHERE l.name = _name AND l.session = _session;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_mark(_value text, _forced boolean, _remember bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lockstile_mark AS m (value, forced, until)
  VALUES (_value, _forced, clock_timestamp() + _remember * interval '1 millisecond')
  ON CONFLICT (value) DO UPDATE SET forced = m.forced OR excluded.forced, until = greatest(m.until, excluded.until);
END $$;

CREATE OR REPLACE FUNCTION lockstile_unlock(_name text, _value text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _key bigint := pg_catalog.hashtextextended(_name, 0);
  _held text;
BEGIN
  SELECT l.value INTO _held FROM lockstile_session l
    WHERE l.name = _name AND NOT l.reserved AND l.pid = pg_backend_pid();
  IF _held <> _value OR _held IS NULL AND EXISTS (SELECT FROM lockstile_session l
    WHERE NOT l.reserved AND l.pid = pg_backend_pid() AND pg_catalog.hashtextextended(l.name, 0) = _key) THEN
    RETURN false;
  END IF;
  RETURN pg_advisory_unlock(_key);
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
