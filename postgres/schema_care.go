package postgres

// lockstile_renew answers, for each place in the arrays, 1 if the lease was
// started anew, -1 or -2 (forced) if it is not ours, and 0 if somebody has locked its
// row just now: one row that is stuck must not hold up the leases that are renewed
// with it. A lease that has ended is not renewed even if nobody has taken it: its
// holder may have been told.
//
// lockstile_force takes a lease from the holder with this value and leaves word of it.
// Sent again after a lost answer, it says the same, and spares the next holder.
//
// lockstile_held lists the leases under a prefix, lockstile_inspect says how one name
// stands.
//
// lockstile_sweep removes what the dead have left under names that nobody uses
// any more, a bounded part of it, and answers how much that was. It never waits for
// a lock.
//
// lockstile_lock_tx draws its token after the lock is there, in the transaction
// that holds it. The message is for the commit to wait for, where nothing else is
// written.
const schemaCare = `
CREATE OR REPLACE FUNCTION lockstile_renew_` + schemaVersion + `(_names text[], _values text[], _ttls bigint[])
RETURNS TABLE (place bigint, code integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  _mine bigint[];
BEGIN` + schemaReads + schemaSync + `
  _mine := ARRAY(SELECT a.place FROM unnest(_names, _values) WITH ORDINALITY AS a(name, value, place)
    JOIN lockstile_lease l ON l.name = a.name AND l.value = a.value
    WHERE NOT l.reserved AND l.expires > clock_timestamp() FOR UPDATE OF l SKIP LOCKED);
  UPDATE lockstile_lease l SET expires = clock_timestamp() + _ttls[a.place] * interval '1 millisecond'
    FROM unnest(_names) WITH ORDINALITY AS a(name, place) WHERE a.place = ANY (_mine) AND l.name = a.name;
  RETURN QUERY SELECT a.place, CASE WHEN a.place = ANY (_mine) THEN 1
      WHEN EXISTS (SELECT FROM lockstile_lease l WHERE l.name = a.name AND l.value = a.value
        AND NOT l.reserved AND l.expires > clock_timestamp()) THEN 0
      WHEN EXISTS (SELECT FROM lockstile_mark m WHERE m.value = a.value AND m.forced) THEN -2
      ELSE -1 END
    FROM unnest(_names, _values) WITH ORDINALITY AS a(name, value, place);
END $$;

CREATE OR REPLACE FUNCTION lockstile_force_` + schemaVersion + `(_name text, _value text, _remember bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _done boolean := lockstile_enter(_name);
BEGIN
  IF NOT EXISTS (SELECT FROM lockstile_lease l WHERE l.name = _name AND l.value = _value
    AND NOT l.reserved AND l.expires > clock_timestamp()) THEN
    RETURN EXISTS (SELECT FROM lockstile_mark m WHERE m.value = _value AND m.forced);
  END IF;
  _done := lockstile_forget(_name, _value, true, _remember);
  PERFORM lockstile_pass(_name);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION lockstile_held_` + schemaVersion + `(_prefix text)
RETURNS TABLE (name text, holder text, token bigint, time_left bigint, waiters bigint) LANGUAGE sql STABLE AS $$
  SELECT l.name, l.holder, l.token, ceil(extract(epoch FROM l.expires - clock_timestamp()) * 1000)::bigint,
    (SELECT count(*) FROM lockstile_queue w WHERE w.name = l.name)
  FROM lockstile_lease l WHERE l.name ^@ _prefix AND NOT l.reserved AND l.expires > clock_timestamp()
$$;

CREATE OR REPLACE FUNCTION lockstile_inspect_` + schemaVersion + `(_name text, OUT value text, OUT holder text,
  OUT token bigint, OUT time_left bigint, OUT waiters bigint) LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN l.remains > 0 THEN l.value ELSE '' END, CASE WHEN l.remains > 0 THEN l.holder ELSE '' END,
    coalesce(l.token, 0), greatest(l.remains, 0), (SELECT count(*) FROM lockstile_queue w WHERE w.name = _name)
  FROM (SELECT) one LEFT JOIN (SELECT i.*, CASE WHEN i.reserved THEN 0
    ELSE ceil(extract(epoch FROM i.expires - clock_timestamp()) * 1000)::bigint END AS remains
    FROM lockstile_lease i WHERE i.name = _name) l ON true
$$;

CREATE OR REPLACE FUNCTION lockstile_sweep_` + schemaVersion + `() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _set text;
  _name text;
  _rows bigint;
  _swept bigint;
BEGIN` + schemaLazy + `
  DELETE FROM lockstile_mark m WHERE m.value IN (SELECT o.value FROM lockstile_mark o
    WHERE o.until < clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS _swept = ROW_COUNT;
  DELETE FROM lockstile_queue w WHERE (w.name, w.ticket, w.value) IN (SELECT o.name, o.ticket, o.value
    FROM lockstile_queue o WHERE o.patient < clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS _rows = ROW_COUNT;
  _swept := _swept + _rows;
  FOR _name IN SELECT l.name FROM lockstile_lease l WHERE l.expires < clock_timestamp() - interval '1 minute' LIMIT 100
  LOOP
    IF pg_try_advisory_xact_lock(1819239275, hashtext(_name)) THEN
      DELETE FROM lockstile_lease l WHERE l.name = _name AND l.expires < clock_timestamp() - interval '1 minute';
      GET DIAGNOSTICS _rows = ROW_COUNT;
      _swept := _swept + _rows;
    END IF;
  END LOOP;
  RETURN _swept;
END $$;

CREATE OR REPLACE FUNCTION lockstile_lock_tx_` + schemaVersion + `(_name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _token bigint;
BEGIN` + schemaEncoding + `
  PERFORM pg_advisory_xact_lock(pg_catalog.hashtextextended(_name, 0));
  _token := lockstile_draw();
  PERFORM pg_logical_emit_message(true, 'lockstile', '');
  RETURN _token;
END $$;
`
