package postgres

// What is done with every lock is short, and each kind has its own functions for
// it: they are what a lock costs the server. The rest of a request is in
// lockstile_wait.
//
// An acquire answers the token of the grant, or 0 if somebody else has the lock,
// with the milliseconds after which to look again, how many wait before us and our
// ticket; or -1 if the value was withdrawn.
//
// It draws first: when nobody else deals with the name any more and no row is
// locked yet. Where there is no grant, what was drawn is the ticket. So nobody can
// come between a draw and its grant, and the row gets a token that was drawn since
// its transaction entered.
//
// The usual case comes next: nobody has the lock or a reservation, nobody waits, and
// the value was not withdrawn. One statement finds that out and writes the row. The
// lease counts on clock_timestamp(), for now() was read before the transaction
// waited to enter.
//
// A release answers 0 if the lock was given back, the next value's token if it was
// handed over to that, and -1 or -2 (forced) if it was not ours. With _yield, other
// processes that wait go before _next: that is asked apart, for as part of the
// update it would have the server plan that anew each time. A _next that was
// withdrawn before this request arrived gets nothing.
//
// A release need not survive a crash: what it left would end with its lease. So
// nobody waits for the disk, except where a lease is started. With _quick that
// does not wait either, if there is no standby to wait for: the heir's process
// promises to believe no longer than in the lease that is on disk. A crash may
// bring that one back, and until its end the lock is nobody else's. Its holder is
// known to nobody any more, so an heir's release removes it too: the tokens from
// _behind, that lease's, up to _mine were all given out in the heir's line.
const schemaLease = `
CREATE OR REPLACE FUNCTION lockstile_lease_acquire(_name text, _value text, _ttl bigint, _holder text,
  _queue boolean, _channel text, _patience bigint, INOUT _ticket bigint,
  OUT _token bigint, OUT _left bigint, OUT _ahead bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _done boolean := lockstile_enter(_name, true);
  _drawn bigint := lockstile_draw();
BEGIN
  _left := 0;
  _ahead := 0;
  INSERT INTO lockstile_lease AS l (name, session, value, reserved, token, holder, ttl, expires)
  SELECT _name, false, _value, false, _drawn, _holder, _ttl, clock_timestamp() + _ttl * interval '1 millisecond'
  WHERE NOT EXISTS (SELECT FROM lockstile_waiter w WHERE w.name = _name AND NOT w.session)
    AND NOT EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value, reserved = false, token = excluded.token,
    holder = excluded.holder, ttl = excluded.ttl, expires = excluded.expires
    WHERE l.expires <= clock_timestamp()
  RETURNING l.token INTO _token;
  IF _token IS NULL THEN
    SELECT w.* INTO _ticket, _token, _left, _ahead FROM lockstile_wait(false, true, _drawn, _name, _value, _ttl,
      _holder, _queue, _channel, _patience, _ticket) w;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_lease_release(_name text, _value text, _channel text,
  _next text, _ttl bigint, _holder text, _yield boolean, _remember bigint, _quick boolean,
  _behind bigint, _mine bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _done boolean := lockstile_enter(_name, _remember > 0 OR _next <> ''
    AND (NOT _quick OR current_setting('synchronous_standby_names') <> ''));
  _over boolean := false;
  _back boolean;
  _code bigint;
  _lock lockstile_lease;
BEGIN
  IF _yield THEN
    _yield := EXISTS (SELECT FROM lockstile_waiter w WHERE w.name = _name AND NOT w.session);
  END IF;
  IF _next <> '' AND NOT _yield THEN
    _code := lockstile_draw();
    UPDATE lockstile_lease l SET value = _next, token = _code, holder = _holder, ttl = _ttl,
      expires = clock_timestamp() + _ttl * interval '1 millisecond'
    WHERE l.name = _name AND l.value = _value AND NOT l.reserved
      AND NOT EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _next);
    _over := FOUND;
  END IF;
  IF NOT _over THEN
    _code := 0;
    DELETE FROM lockstile_lease l WHERE l.name = _name AND l.value = _value AND NOT l.reserved
      AND NOT EXISTS (SELECT FROM lockstile_waiter w WHERE w.name = _name AND NOT w.session);
    _over := FOUND;
  END IF;
  IF NOT _over THEN
    SELECT * INTO _lock FROM lockstile_lease l WHERE l.name = _name FOR UPDATE;
    _back := FOUND AND NOT _lock.reserved AND _behind > 0 AND _lock.token >= _behind AND _lock.token < _mine;
    IF NOT _back AND (_lock.name IS NULL OR _lock.value <> _value OR _lock.reserved) THEN
      RETURN CASE WHEN _next <> '' AND _lock.value = _next AND NOT _lock.reserved THEN _lock.token
        WHEN EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value AND m.forced) THEN -2 ELSE -1 END;
    END IF;
    PERFORM lockstile_give(false, _name, _channel);
  END IF;
  IF _remember > 0 THEN
    PERFORM lockstile_mark(_value, false, _remember);
  END IF;
  RETURN _code;
END $$;
`

// An advisory lock is held by whom the server says, not by whom the row says, and
// pg_try_advisory_lock alone decides. The row and the queue come after it: nothing
// may be reserved for the first waiter while the lock is still held. A lock that
// nobody has reserved is its caller's already, whatever the row says.
// No value of a session is ever withdrawn: what it sends late is lost with it.
//
// _patience is how long the server keeps the connection of a session that says
// nothing: it is set with the grant, in one statement, so that no lock is ever
// without it.
const schemaSession = `
CREATE OR REPLACE FUNCTION lockstile_session_acquire(_name text, _value text, _ttl bigint, _holder text,
  _queue boolean, _channel text, _patience bigint, INOUT _ticket bigint,
  OUT _token bigint, OUT _left bigint, OUT _ahead bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _done boolean := lockstile_enter(_name, true);
  _free boolean := pg_try_advisory_lock(pg_catalog.hashtextextended(_name, 0));
  _drawn bigint := lockstile_draw();
  _set text;
BEGIN
  _left := 0;
  _ahead := 0;
  IF _free THEN
    INSERT INTO lockstile_session AS l (name, session, value, reserved, token, holder, ttl, expires, pid)
    SELECT _name, true, _value, false, _drawn, _holder, _ttl, 'infinity', pg_backend_pid()
    WHERE NOT EXISTS (SELECT FROM lockstile_waiter w WHERE w.name = _name AND w.session)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, reserved = false, token = excluded.token,
      holder = excluded.holder, ttl = excluded.ttl, expires = excluded.expires, pid = excluded.pid
      WHERE NOT l.reserved OR l.expires <= clock_timestamp()
    RETURNING l.token INTO _token;
  END IF;
  IF _token IS NULL THEN
    SELECT w.* INTO _ticket, _token, _left, _ahead FROM lockstile_wait(true, _free, _drawn, _name, _value, _ttl,
      _holder, _queue, _channel, _patience, _ticket) w;
  END IF;
  IF _token > 0 THEN
    PERFORM pg_logical_emit_message(true, 'lockstile', '');
    _set := set_config('idle_session_timeout', _patience::text, false);
  ELSIF _free THEN
    _free := pg_advisory_unlock(pg_catalog.hashtextextended(_name, 0));
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_release(_name text, _value text, _channel text,
  _next text, _ttl bigint, _holder text, _yield boolean, _patience bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _done boolean := lockstile_enter(_name, _next <> '');
  _code bigint;
  _lock lockstile_session;
  _set text;
BEGIN
  IF _yield THEN
    _yield := EXISTS (SELECT FROM lockstile_waiter w WHERE w.name = _name AND w.session);
  END IF;
  IF _next <> '' AND NOT _yield THEN
    _code := lockstile_draw();
    UPDATE lockstile_session l SET value = _next, token = _code, holder = _holder, ttl = _ttl, pid = pg_backend_pid()
    WHERE l.name = _name AND l.value = _value AND NOT l.reserved;
    IF FOUND THEN
      PERFORM pg_logical_emit_message(true, 'lockstile', '');
      _set := set_config('idle_session_timeout', _patience::text, false);
      RETURN _code;
    END IF;
  END IF;
  DELETE FROM lockstile_session l WHERE l.name = _name AND l.value = _value AND NOT l.reserved
    AND NOT EXISTS (SELECT FROM lockstile_waiter w WHERE w.name = _name AND w.session);
  _done := FOUND;
  IF NOT _done THEN
    SELECT * INTO _lock FROM lockstile_session l WHERE l.name = _name FOR UPDATE;
    IF NOT FOUND OR _lock.value <> _value OR _lock.reserved THEN
      IF NOT lockstile_unlock(_name, _value) THEN
        RETURN -1;
      END IF;
      _set := set_config('idle_session_timeout', _patience::text, false);
      RETURN 0;
    END IF;
  END IF;
  _set := set_config('idle_session_timeout', _patience::text, false);
  IF NOT pg_advisory_unlock(pg_catalog.hashtextextended(_name, 0)) THEN
    RETURN -1;
  END IF;
  IF NOT _done THEN
    PERFORM lockstile_give(true, _name, _channel);
  END IF;
  RETURN 0;
END $$;
`
