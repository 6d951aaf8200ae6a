package postgres

// lockstile_acquire returns the first token of the grant, and its slot; or 0 if the lock is
// taken, with the milliseconds after which to look again, how many wait before us and our
// ticket; or -1 if the value was withdrawn; or -2 if the name is held in a way that does not
// go with the request, with _slot saying in which.
//
// It reads the rows without locking them, for to lock a row is to write. So a TryLock that
// finds the lock taken leaves nothing in the log and needs no transaction number. Where
// somebody waits, whoever may go in goes in first ([lockstile_pass]), and so do we among
// them: a waiter that has lost its place has it again before. The token is drawn last,
// when nothing can come between it and the grant any more. The lease counts from
// clock_timestamp(): now() was read before the transaction waited to enter.
//
// A waiter looks again when the first of those who have the lock would have to renew it: of
// several that die, nobody says so. A reader that only a waiting writer keeps out looks as
// if that writer were dead. A writer that waits for readers looks every five seconds: it is
// alive for those behind it until ten seconds after a look.
//
// lockstile_read is all of it where readers alone are there, and nobody waits; else it does
// nothing and returns 0. lockstile_unread is the same for the release of a reader. What they
// have found out is undone then, so that they keep nobody away any more.
//
// Asked again with the value that has the lease, it returns the same token and starts
// the lease anew, for the caller may count its validity from the second request. A lease that has
// ended is granted like any other: somebody may have had the lock since, and left no trace
// (lockstile_free).
//
// Whoever grants a lease has the name's advisory key until it has committed ([schemaKey]). So a
// lease and a lock of [NewSession] or [LockTx], which has that key, exclude each other: the row can be
// seen before the key is free. Where somebody else has the key, the lock is taken, and a waiter looks ten times a
// second: nobody tells it when the key is free.
//
// lockstile_resume grants the lease to a value in place of another one, which another process had and has handed over. It is
// one of _values. Each of them is refused from then on, whatever the answer is: its first request may still be on its way, and must not find the lock
// free when it was given back. Sent again, it returns the same token, and ends no lease sooner. It returns the token, or -1 or -2 (forced) if none of them has the lock. The row is there all the time, so
// the advisory key need not be taken.
//
// lockstile_renew returns, for each place in the arrays, 1 if the lease was started
// anew, -1 or -2 (forced) if it is not ours, and 0 if somebody has locked its row just
// now: one row that is stuck must not hold up the leases that are renewed with it. A
// lease that has ended is not renewed even if nobody has taken it: its holder may have
// been told, or somebody else may have seen that it has ended. So it looks at the clock when it has locked the row.
//
// lockstile_release removes everything that an attempt has in the store: the lock, a
// reservation, and its place in the queue if it may have one. It returns 0 if the attempt
// had the lock or its reservation, and -1 or -2 (forced) if not, or if that had ended. That need not outlast a
// crash: what is left then ends with its lease. For _remember milliseconds from then on,
// requests with this value are refused: one may be on its way over a slower connection.
// The refusal outlasts a crash, for a pooler may keep the request. With _keep, which outlasts a
// crash too, the lock stays taken ([lockstile_keep]).
//
// lockstile_break takes the leases with these tokens from their holders, and leaves marks
// that say so.
//
// lockstile_inspect returns what is known of a name, one row for each holder, or one alone;
// lockstile_list what is held under names that begin with a prefix. A value of more than 22 characters
// is that of [lockstile_keep], which has one before those of an attempt.
//
// lockstile_sweep removes a bounded part of what dead processes have left under names
// that nobody uses any more, and returns how much that was. It never waits for a lock.
const schemaLease = `
CREATE OR REPLACE FUNCTION lockstile_read(_name text, _value text, _ttl bigint, _holder text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _token bigint;
BEGIN
  PERFORM lockstile_enter(_name, true);
  IF NOT EXISTS (SELECT FROM lockstile_lease l WHERE l.name = _name AND (l.slots >= 0 OR l.value = _value OR l.expires <= clock_timestamp()))
    AND NOT EXISTS (SELECT FROM lockstile_queue w WHERE w.name = _name)
    AND NOT EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value)
    AND pg_try_advisory_xact_lock_shared(hashtextextended(_name, 0)) THEN` + schemaSync + `
    INSERT INTO lockstile_lease AS l (name, value, reserved, token, holder, expires, slots)
    SELECT _name, _value, false, nextval('lockstile_token') * 1024, _holder, clock_timestamp() + _ttl * interval '1 millisecond', -1` + schemaDraw + `
    ON CONFLICT (name, value) DO NOTHING RETURNING l.token INTO _token;
  END IF;
  IF _token IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LS001';
  END IF;` + schemaNote + `
  RETURN _token;
EXCEPTION WHEN SQLSTATE 'LS001' THEN
  RETURN 0;
END $$;

CREATE OR REPLACE FUNCTION lockstile_unread(_name text, _value text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _set text;
BEGIN
  PERFORM lockstile_enter(_name, true);` + schemaLazy + `
  DELETE FROM lockstile_lease l WHERE l.name = _name AND l.value = _value AND l.expires > clock_timestamp()
    AND NOT EXISTS (SELECT FROM lockstile_queue w WHERE w.name = _name);
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LS001';
  END IF;
  RETURN true;
EXCEPTION WHEN SQLSTATE 'LS001' THEN
  RETURN false;
END $$;

CREATE OR REPLACE FUNCTION lockstile_acquire_` + schemaVersion + `(_name text, _value text, _ttl bigint, _holder text,
  _queue boolean, _channel text, _patience bigint, INOUT _ticket bigint,
  _synced boolean, _slots integer DEFAULT 0, OUT _token bigint, OUT _slot integer, OUT _left bigint, OUT _ahead bigint)
LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _set text;
  _refused boolean;
  _waited boolean;
  _lock lockstile_lease;
  _alone boolean;
  _reserved boolean;
  _key boolean;
BEGIN` + schemaStandby + `
  _slot := 0;
  _left := 0;
  _ahead := 0;
  _token := CASE WHEN _slots < 0 THEN lockstile_read(_name, _value, _ttl, _holder) ELSE 0 END;
  IF _token > 0 THEN
    RETURN;
  END IF;
  _alone := lockstile_enter(_name, false);
  SELECT * INTO _lock FROM lockstile_lease l WHERE l.name = _name ORDER BY l.value = _value DESC LIMIT 1;
  _slot := coalesce(_lock.slot, 0);
  IF _lock.value = _value AND NOT _lock.reserved THEN` + schemaSync + `
    PERFORM FROM lockstile_lease l WHERE l.name = _name AND l.value = _value FOR UPDATE;
    UPDATE lockstile_lease l SET expires = greatest(l.expires, clock_timestamp() + _ttl * interval '1 millisecond')
      WHERE l.name = _name AND l.value = _value AND l.expires > clock_timestamp();
    IF FOUND THEN
      _token := _lock.token;
      RETURN;
    END IF;
  END IF;
  SELECT EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value),
    EXISTS (SELECT FROM lockstile_queue w WHERE w.name = _name) INTO _refused, _waited;
  IF _refused THEN
    _token := -1;
    RETURN;
  END IF;

  _reserved := coalesce(_lock.value = _value AND _lock.reserved, false);
  IF NOT _reserved AND _lock.value IS NOT NULL THEN
    _slot := lockstile_room(_name, _slots);
  END IF;
  IF _slot IS NOT NULL THEN
    _key := ` + schemaKey + `;
    IF NOT _key THEN
      _slot := NULL;
    ELSIF _waited AND NOT _reserved THEN
      IF _queue AND _ticket > 0 THEN
        PERFORM lockstile_wait(_name, _value, _slots, _channel, _patience, _left, _ticket);
      END IF;
      _alone := lockstile_pass(_name, _value);
      SELECT l.slot INTO _slot FROM lockstile_lease l WHERE l.name = _name AND l.value = _value;
      IF NOT FOUND AND _alone THEN
        _slot := lockstile_room(_name, _slots);
      END IF;
    END IF;
  END IF;
  IF _slot IS NOT NULL THEN` + schemaSync + `
    INSERT INTO lockstile_lease AS l (name, value, reserved, token, holder, expires, slots, slot)
    SELECT _name, _value, false, nextval('lockstile_token') * 1024, _holder, clock_timestamp() + _ttl * interval '1 millisecond', _slots, _slot` + schemaDraw + `
    ON CONFLICT (name, value) DO UPDATE SET reserved = false, token = excluded.token, holder = excluded.holder, expires = excluded.expires
    RETURNING l.token INTO _token;` + schemaNote + `
    RETURN;
  END IF;
` + schemaLazy + `
  SELECT coalesce(max(l.slots), _slots), CASE WHEN max(l.slots) = _slots AND (_slots < 0 OR count(*) < _slots) THEN 0
      ELSE least(greatest(ceil(extract(epoch FROM min(l.expires) - clock_timestamp()) * 1000), 0), CASE WHEN max(l.slots) < 0 THEN 5000 END) END
    INTO _slot, _left FROM lockstile_lease l WHERE l.name = _name AND l.expires > clock_timestamp();
  IF NOT _key THEN
    _left := 100;
  END IF;
  IF _slot <> _slots AND greatest(_slot, _slots) > 0 THEN
    _token := -2;
  ELSIF _queue THEN
    SELECT w._left, w._ticket, w._ahead INTO _left, _ticket, _ahead FROM lockstile_wait(_name, _value, _slots, _channel, _patience, _left, _ticket) w;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_resume_` + schemaVersion + `(_name text, _value text, _ttl bigint, _holder text, _values text[], _remember bigint, _synced boolean)
RETURNS bigint LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _entered boolean;
  _was text;
  _expires timestamptz;
  _live boolean;
  _token bigint;
BEGIN` + schemaStandby + `
  _entered := lockstile_enter(_name, false);
  SELECT l.value, l.expires INTO _was, _expires FROM lockstile_lease l WHERE l.name = _name AND l.value = ANY (_value || _values)
    AND NOT l.reserved AND l.slots = 0 FOR UPDATE;
  _live := FOUND AND _expires > clock_timestamp(); -- now that the row is locked` + schemaSync + `
  INSERT INTO lockstile_mark AS m (value, forced, until)
  SELECT v, false, clock_timestamp() + _remember * interval '1 millisecond' FROM unnest(_values) v
  ON CONFLICT (value) DO UPDATE SET until = greatest(m.until, excluded.until);
  IF NOT _live THEN
    RETURN CASE WHEN EXISTS (SELECT FROM lockstile_mark m WHERE m.value = ANY (_value || _values) AND m.forced) THEN -2 ELSE -1 END;
  END IF;
  IF _was = _value THEN -- it is sent again
    UPDATE lockstile_lease l SET expires = greatest(l.expires, clock_timestamp() + _ttl * interval '1 millisecond')
      WHERE l.name = _name AND l.value = _value RETURNING l.token INTO _token;
    RETURN _token;
  END IF;
  SELECT nextval('lockstile_token') * 1024 INTO _token` + schemaDraw + `;` + schemaNote + `
  UPDATE lockstile_lease l SET value = _value, token = _token, holder = _holder, expires = clock_timestamp() + _ttl * interval '1 millisecond'
    WHERE l.name = _name AND l.value = _was;
  RETURN _token;
END $$;

CREATE OR REPLACE FUNCTION lockstile_renew_` + schemaVersion + `(_names text[], _values text[], _ttls bigint[], _synced boolean)
RETURNS TABLE (place bigint, code integer) LANGUAGE plpgsql` + schemaSafe + ` AS $$
#variable_conflict use_column
DECLARE
  _mine bigint[];
BEGIN` + schemaReads + schemaStandby + schemaSync + `
  _mine := ARRAY(SELECT a.place FROM unnest(_names, _values) WITH ORDINALITY AS a(name, value, place)
    JOIN lockstile_lease l ON l.name = a.name AND l.value = a.value
    WHERE NOT l.reserved FOR UPDATE OF l SKIP LOCKED);
  WITH renewed AS (UPDATE lockstile_lease l SET expires = greatest(l.expires, clock_timestamp() + _ttls[a.place] * interval '1 millisecond')
      FROM unnest(_names, _values) WITH ORDINALITY AS a(name, value, place)
      WHERE a.place = ANY (_mine) AND l.name = a.name AND l.value = a.value AND l.expires > clock_timestamp() RETURNING a.place)
    SELECT array_agg(r.place) INTO _mine FROM renewed r;
  RETURN QUERY SELECT a.place, CASE WHEN a.place = ANY (_mine) THEN 1
      WHEN EXISTS (SELECT FROM lockstile_lease l WHERE l.name = a.name AND l.value = a.value
        AND NOT l.reserved AND l.expires > clock_timestamp()) THEN 0
      WHEN EXISTS (SELECT FROM lockstile_mark m WHERE m.value = a.value AND m.forced) THEN -2
      ELSE -1 END
    FROM unnest(_names, _values) WITH ORDINALITY AS a(name, value, place);
END $$;

CREATE OR REPLACE FUNCTION lockstile_release_` + schemaVersion + `(_name text, _value text, _queued boolean, _remember bigint, _keep bigint, _shared boolean DEFAULT false)
RETURNS bigint LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _set text;
  _waited boolean;
  _done boolean;
BEGIN
  IF _shared AND NOT _queued AND _remember = 0 AND lockstile_unread(_name, _value) THEN
    RETURN 0;
  END IF;
  _done := lockstile_enter(_name, false);
  IF _keep = 0 THEN` + schemaLazy + `
  ELSE` + schemaSync + `
  END IF;
  IF _queued THEN
    DELETE FROM lockstile_queue w WHERE w.name = _name AND w.value = _value;
  END IF;
  IF _remember > 0 THEN` + schemaSync + `
    INSERT INTO lockstile_mark AS m (value, forced, until)
    VALUES (_value, false, clock_timestamp() + _remember * interval '1 millisecond')
    ON CONFLICT (value) DO UPDATE SET until = greatest(m.until, excluded.until);
  END IF;
  IF _keep > 0 AND lockstile_keep(_name, _value, _keep) THEN
    RETURN 0;
  END IF;
  DELETE FROM lockstile_lease l WHERE l.name = _name AND l.value = _value
    RETURNING EXISTS (SELECT FROM lockstile_queue w WHERE w.name = _name), l.expires > clock_timestamp() INTO _waited, _done;
  IF coalesce(_waited, _queued) THEN
    PERFORM lockstile_pass(_name, _value);
  END IF;
  IF coalesce(_done, false) THEN
    RETURN 0;
  END IF;
  RETURN CASE WHEN EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value AND m.forced) THEN -2 ELSE -1 END;
END $$;

CREATE OR REPLACE FUNCTION lockstile_break_` + schemaVersion + `(_name text, _tokens bigint[], _remember bigint)
RETURNS boolean LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _value text;
  _entered boolean := lockstile_enter(_name, false);
  _broken boolean := false;
BEGIN
  FOR _value IN SELECT l.value FROM lockstile_lease l WHERE l.name = _name AND l.token = ANY (_tokens)
    AND NOT l.reserved AND l.expires > clock_timestamp()
  LOOP
    PERFORM lockstile_release_` + schemaVersion + `(_name, _value, true, _remember, 0::bigint, false);
    UPDATE lockstile_mark m SET forced = true WHERE m.value = _value;
    _broken := true;
  END LOOP;
  RETURN _broken;
END $$;

CREATE OR REPLACE FUNCTION lockstile_inspect_` + schemaVersion + `(_name text) RETURNS ` + schemaHolders + ` LANGUAGE sql STABLE` + schemaSafe + ` AS $$
  SELECT _name, l.remains IS NOT NULL, CASE WHEN l.remains > 0 THEN l.holder ELSE '' END, coalesce(l.token, 0),
    coalesce(l.remains, 0), (SELECT count(*) FROM lockstile_queue w WHERE w.name = _name), coalesce(l.slots, 0), coalesce(l.slot, 0)
  FROM (SELECT) one LEFT JOIN (SELECT i.holder, i.token, i.slots, CASE WHEN length(i.value) > 22 THEN -1 ELSE i.slot END AS slot, CASE WHEN NOT i.reserved AND i.expires > clock_timestamp()
    THEN ceil(extract(epoch FROM i.expires - clock_timestamp()) * 1000)::bigint END AS remains
    FROM lockstile_lease i WHERE i.name = _name) l ON true ORDER BY 4
$$;

CREATE OR REPLACE FUNCTION lockstile_list_` + schemaVersion + `(_prefix text) RETURNS ` + schemaHolders + ` LANGUAGE sql STABLE` + schemaSafe + ` AS $$
  SELECT i.* FROM (SELECT DISTINCT l.name FROM lockstile_lease l WHERE l.name ^@ _prefix) n,
    lockstile_inspect_` + schemaVersion + `(n.name) i WHERE i.held ORDER BY i.name, i.token
$$;

CREATE OR REPLACE FUNCTION lockstile_sweep_` + schemaVersion + `() RETURNS bigint LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _set text;
  _dead record;
  _swept bigint;
BEGIN` + schemaLazy + `
  WITH marks AS (DELETE FROM lockstile_mark m WHERE m.value IN (SELECT o.value FROM lockstile_mark o
      WHERE o.until < clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED) RETURNING m.value),
    waiters AS (DELETE FROM lockstile_queue w WHERE (w.name, w.ticket, w.value) IN (SELECT o.name, o.ticket, o.value
      FROM lockstile_queue o WHERE o.patient < clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED) RETURNING w.value),
    notes AS (DELETE FROM lockstile_drawn d WHERE d.upto IN (SELECT o.upto FROM lockstile_drawn o
      WHERE o.upto < (SELECT max(a.upto) FROM lockstile_drawn a) LIMIT 1000 FOR UPDATE SKIP LOCKED) RETURNING d.upto)
    SELECT (SELECT count(*) FROM marks) + (SELECT count(*) FROM waiters) + (SELECT count(*) FROM notes) INTO _swept;
  FOR _dead IN SELECT l.name, l.value FROM lockstile_lease l WHERE l.expires < clock_timestamp() - interval '1 minute'
    LIMIT 100 FOR UPDATE SKIP LOCKED
  LOOP
    IF pg_try_advisory_xact_lock(1819239275, hashtext(_dead.name)) THEN
      DELETE FROM lockstile_lease l WHERE l.name = _dead.name AND l.value = _dead.value;
      _swept := _swept + 1;
    END IF;
  END LOOP;
  RETURN _swept;
END $$;
`
