package postgres

// lockstile_acquire answers the first token of the grant; or 0 if somebody else has
// the lock, with the milliseconds after which to look again, how many wait before us
// and our ticket; or -1 if the value was withdrawn.
//
// The row is read without a lock, for to lock a row is to write: whoever finds the
// lock taken, and does not queue, leaves nothing in the log and needs no transaction
// number. A lease that has ended is read once more FOR UPDATE: a renewal may be on
// its way to the disk. The token is drawn last, when nothing can come between it and
// the grant any more. The lease counts on clock_timestamp(), for now() was read before
// the transaction waited to enter.
//
// Asked again with the value that has the lease, it answers the same token and starts
// the lease anew, for the caller may count its validity from the second request.
//
// lockstile_release answers 0 if the lock was given back, and -1 or -2 (forced) if
// it was not ours. It need not outlast a crash: what it left would end with its lease.
//
// lockstile_withdraw removes whatever an attempt may have left: its place in the
// queue, a reservation, the lock.
//
// lockstile_forget removes the place in the queue, and has requests with this value
// refused for so many milliseconds: one may be on its way, over a connection that is
// slower than this one. That outlasts a crash, for a pooler may keep the request.
const schemaLease = `
CREATE OR REPLACE FUNCTION lockstile_acquire_` + schemaVersion + `(_name text, _value text, _ttl bigint, _holder text,
  _queue boolean, _channel text, _patience bigint, INOUT _ticket bigint,
  OUT _token bigint, OUT _left bigint, OUT _ahead bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _set text;
  _first text;
  _refused boolean;
  _lock lockstile_lease;
  _free boolean := lockstile_enter(_name);
BEGIN
  _token := 0;
  _left := 0;
  _ahead := 0;
  SELECT * INTO _lock FROM lockstile_lease l WHERE l.name = _name;
  IF _lock.expires <= clock_timestamp() THEN
    SELECT * INTO _lock FROM lockstile_lease l WHERE l.name = _name FOR UPDATE;
  END IF;
  IF _lock.value = _value AND NOT _lock.reserved THEN` + schemaSync + `
    UPDATE lockstile_lease l SET expires = clock_timestamp() + _ttl * interval '1 millisecond' WHERE l.name = _name;
    _token := _lock.token;
    RETURN;
  END IF;
  SELECT EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value),
    (SELECT w.value FROM lockstile_queue w WHERE w.name = _name ORDER BY w.ticket, w.value LIMIT 1)
    INTO _refused, _first;
  IF _refused THEN
    _token := -1;
    RETURN;
  END IF;

  _free := _lock.value IS NULL OR _lock.value = _value OR _lock.expires <= clock_timestamp();
  IF _free AND _lock.value IS DISTINCT FROM _value AND _first <> _value THEN
    _first := lockstile_pass(_name);
    _free := coalesce(_first = _value, true);
  END IF;
  IF _free THEN
    IF _ticket < 0 OR _first = _value THEN
      DELETE FROM lockstile_queue w WHERE w.name = _name AND w.value = _value;
    END IF;
    INSERT INTO lockstile_lease AS l (name, value, reserved, token, holder, expires)
    VALUES (_name, _value, false, lockstile_draw(), _holder, clock_timestamp() + _ttl * interval '1 millisecond')
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, reserved = false, token = excluded.token,
      holder = excluded.holder, expires = excluded.expires
    RETURNING l.token INTO _token;
    RETURN;
  END IF;
` + schemaLazy + `
  IF _queue THEN
    SELECT greatest(ceil(extract(epoch FROM l.expires - clock_timestamp()) * 1000), 0) INTO _left
      FROM lockstile_lease l WHERE l.name = _name;
    SELECT w._ticket, w._ahead INTO _ticket, _ahead FROM lockstile_wait(_name, _value, _channel, _patience, _left, _ticket) w;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_release_` + schemaVersion + `(_name text, _value text, _remember bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _set text;
  _done boolean := lockstile_enter(_name);
BEGIN` + schemaLazy + `
  IF _remember > 0 THEN
    _done := lockstile_forget(_name, _value, false, _remember);
  END IF;
  DELETE FROM lockstile_lease l WHERE l.name = _name AND l.value = _value AND NOT l.reserved
    AND NOT EXISTS (SELECT FROM lockstile_queue w WHERE w.name = _name);
  IF FOUND THEN
    RETURN 0;
  END IF;
  IF EXISTS (SELECT FROM lockstile_lease l WHERE l.name = _name AND l.value = _value AND NOT l.reserved) THEN
    PERFORM lockstile_pass(_name);
    RETURN 0;
  END IF;
  RETURN CASE WHEN EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value AND m.forced) THEN -2 ELSE -1 END;
END $$;

CREATE OR REPLACE FUNCTION lockstile_withdraw_` + schemaVersion + `(_name text, _value text, _remember bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _set text;
  _done boolean := lockstile_enter(_name);
BEGIN` + schemaLazy + `
  _done := lockstile_forget(_name, _value, false, _remember);
  IF EXISTS (SELECT FROM lockstile_lease l WHERE l.name = _name AND l.value = _value) THEN
    PERFORM lockstile_pass(_name);
  END IF;
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION lockstile_forget(_name text, _value text, _forced boolean, _remember bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lockstile_queue w WHERE w.name = _name AND w.value = _value;
  IF _remember > 0 THEN` + schemaSync + `
    INSERT INTO lockstile_mark AS m (value, forced, until)
    VALUES (_value, _forced, clock_timestamp() + _remember * interval '1 millisecond')
    ON CONFLICT (value) DO UPDATE SET forced = m.forced OR excluded.forced, until = greatest(m.until, excluded.until);
  END IF;
  RETURN true;
END $$;
`
