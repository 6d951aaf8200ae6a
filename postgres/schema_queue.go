package postgres

// Functions that are called with every lock return something, so that they can be
// part of an expression: PERFORM would cost as much as they do.
//
// lockstile_enter lets one transaction at a time deal with a name. All functions call it
// except renewals, which only make a lease last longer. It makes a grant and its token
// one step: the next transaction sees the row that this one wrote, and draws a greater
// token. With _shared it keeps only those away that come without. So readers come and go
// while others wait for the disk, as long as there are readers alone and nobody waits, and
// everybody else sees a name at which no reader is under way.
//
// lockstile_room returns a slot for a request, or nothing if those who have the lock leave
// no room for it. Everybody who has a lock has it in the same way: _slots is how many may
// have it at once, 0 for an exclusive lock and -1 for a shared one. Leases that have ended
// and would be in the way are removed, so what is there always goes together, ended or not.
// A renewal of one of them may be on its way to the disk: that is waited for.
//
// lockstile_pass reserves the lock for the first waiters, one after another, as long as
// there is room for them, and returns whether nobody waits any more. So neighbours that
// share go in together, and nobody goes in before somebody who came earlier. A waiter that
// is dead is removed. One is alive if it is the one that asks, if its process listens (every
// listening connection holds an advisory lock for as long as it lives) or if it has polled
// lately. Only those who can go in are told. A waiter that does not claim the lock in time
// is skipped; the next in the queue is told to look again by then, so that somebody notices.
// Where it can do nothing, it writes nothing. Where nobody is notified ([schemaHeard]), a waiter
// that sleeps until it is notified is passed over, and keeps its place: it polls once it has looked.
// Where somebody else has the name's advisory key, nothing is reserved: the first waiter is told, and looks
// until the key is free.
//
// lockstile_free returns whether no lease keeps out a transaction or session that has the name's advisory key, and wants
// the lock as _slots says. It finds out as lockstile_room does, by removing what has ended: to read when a lease ends
// is not enough while a renewal is under way. It undoes that: a transaction that goes on for hours would keep
// whoever cleans up after such a lease waiting, and everybody else behind that. Without the key nobody begins an ended lease anew.
//
// lockstile_keep leaves a lock that is given back taken, under nobody's value, until _keep
// milliseconds have passed, and returns whether it is. The first two waiters that are alive
// are told to look again, for the end of the lease that they have heard of is not the end
// any more. Asked again, it changes nothing, but writes the row as it is: if the first wait
// for the standby was cancelled, this one waits too. A renewal finds the value gone.
//
// lockstile_wait gives a waiter a place in the queue, or keeps its place. A new place is
// behind all that are there, and, if the clock did not go back, behind all that a crash
// has made the queue forget. It returns the ticket and how many are before. A ticket of
// -1 says that there may be a place already, of which its waiter was not told. Where nobody is
// notified it has the waiter look ten times a second, and be one that polls.
const schemaQueue = `
CREATE OR REPLACE FUNCTION lockstile_enter(_name text, _shared boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN` + schemaReads + `
  RETURN CASE WHEN _shared THEN pg_advisory_xact_lock_shared(1819239275, hashtext(_name)) IS NOT NULL
    ELSE pg_advisory_xact_lock(1819239275, hashtext(_name)) IS NOT NULL END;
END $$;

CREATE OR REPLACE FUNCTION lockstile_room(_name text, _slots integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  _rows bigint;
  _ended bigint;
  _same boolean;
BEGIN
  SELECT count(*), count(*) FILTER (WHERE l.expires <= clock_timestamp()), bool_and(l.slots = _slots)
    INTO _rows, _ended, _same FROM lockstile_lease l WHERE l.name = _name;
  IF _ended > 0 AND (_rows = _ended OR _same AND (_slots < 0 OR _rows - _ended < _slots)) THEN
    DELETE FROM lockstile_lease l WHERE l.name = _name AND l.expires <= clock_timestamp();
    GET DIAGNOSTICS _ended = ROW_COUNT;
    _rows := _rows - _ended;
  END IF;
  RETURN CASE WHEN _rows = 0 OR _same AND _slots < 0 THEN 0 WHEN _same AND _rows < _slots THEN
    (SELECT min(s) FROM generate_series(0, _rows::integer) s WHERE s NOT IN (SELECT l.slot FROM lockstile_lease l WHERE l.name = _name)) END;
END $$;

CREATE OR REPLACE FUNCTION lockstile_free(_name text, _slots integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _free boolean;
BEGIN
  _free := lockstile_room(_name, _slots) IS NOT NULL;
  RAISE EXCEPTION USING ERRCODE = 'LS001';
EXCEPTION WHEN SQLSTATE 'LS001' THEN
  RETURN _free;
END $$;

CREATE OR REPLACE FUNCTION lockstile_pass(_name text, _asks text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _first lockstile_queue;
  _slots integer;
  _slot integer;
  _changed boolean := false;
  _heard boolean := ` + schemaHeard + `;
BEGIN
  LOOP
    SELECT * INTO _first FROM lockstile_queue w WHERE w.name = _name AND (_heard OR w.channel = '' OR w.value = _asks)
      ORDER BY w.ticket, w.value LIMIT 1;
    IF NOT FOUND THEN
      RETURN true;
    END IF;
    IF _first.value = _asks OR ` + schemaAlive + ` THEN
      _slots := _first.slots;
      _slot := lockstile_room(_name, _slots);
      EXIT WHEN _slot IS NULL;
      IF NOT ` + schemaKey + ` THEN
        IF _heard AND _first.channel <> '' AND _first.value <> _asks THEN
          PERFORM pg_notify(_first.channel, _first.value);
        END IF;
        RETURN false;
      END IF;
      INSERT INTO lockstile_lease (name, value, reserved, token, holder, expires, slots, slot)
      VALUES (_name, _first.value, true, 0, '', clock_timestamp() + interval '500 milliseconds', _first.slots, _slot)
      ON CONFLICT (name, value) DO NOTHING;
      IF _first.channel <> '' AND _first.value <> _asks THEN
        PERFORM pg_notify(_first.channel, _first.value);
      END IF;
    END IF;
    DELETE FROM lockstile_queue w WHERE w.name = _name AND w.ticket = _first.ticket AND w.value = _first.value;
    _changed := true;
  END LOOP;
  IF _changed AND _heard AND _first.channel <> '' THEN
    PERFORM pg_notify(_first.channel, '!' || _first.value);
  END IF;
  RETURN false;
END $$;

CREATE OR REPLACE FUNCTION lockstile_keep(_name text, _value text, _keep bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _first lockstile_queue;
  _told integer := 0;
  _heard boolean := ` + schemaHeard + `;
BEGIN
  UPDATE lockstile_lease l SET value = '-' || _value, expires = clock_timestamp() + _keep * interval '1 millisecond'
    WHERE l.name = _name AND l.value = _value AND l.expires > clock_timestamp();
  IF NOT FOUND THEN
    UPDATE lockstile_lease l SET expires = l.expires WHERE l.name = _name AND l.value = '-' || _value;
    RETURN FOUND;
  END IF;
  FOR _first IN SELECT * FROM lockstile_queue w WHERE w.name = _name ORDER BY w.ticket, w.value LOOP
    CONTINUE WHEN NOT (` + schemaAlive + `);
    IF _heard AND _first.channel <> '' THEN
      PERFORM pg_notify(_first.channel, CASE _told WHEN 0 THEN '' ELSE '!' END || _first.value);
    END IF;
    _told := _told + 1;
    EXIT WHEN _told = 2;
  END LOOP;
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION lockstile_wait(_name text, _value text, _slots integer, _channel text, _patience bigint, INOUT _left bigint,
  INOUT _ticket bigint, OUT _ahead bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _heard boolean := _channel = '' OR ` + schemaHeard + `;
BEGIN
  IF NOT _heard THEN
    _channel := '';
  END IF;
  IF _ticket < 0 THEN
    SELECT w.ticket INTO _ticket FROM lockstile_queue w WHERE w.name = _name AND w.value = _value;
  END IF;
  IF coalesce(_ticket, 0) = 0 THEN
    SELECT greatest(max(w.ticket) + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) INTO _ticket
      FROM lockstile_queue w WHERE w.name = _name;
  END IF;
  SELECT count(*) INTO _ahead FROM lockstile_queue w WHERE w.name = _name AND w.ticket < _ticket;
  INSERT INTO lockstile_queue (name, ticket, value, channel, patient, slots)
  VALUES (_name, _ticket, _value, _channel, clock_timestamp()
    + (CASE WHEN _channel = '' THEN _patience ELSE _left + _ahead * 500 + 10000 END) * interval '1 millisecond', _slots)
  ON CONFLICT (name, ticket, value) DO UPDATE SET channel = excluded.channel, patient = excluded.patient;
  IF NOT _heard THEN
    _left := 100;
    _ahead := 0;
  END IF;
END $$;
`

// schemaHeard is whether notifications are sent. Where somebody listens inside of an open
// transaction the server keeps all of them, whoever they are for. When its queue is full, the commit
// of a transaction that has sent one fails: a release would be undone by the word that tells of
// it. So from half of the queue on, where the server begins to warn, nobody is notified.
const schemaHeard = `pg_notification_queue_usage() < 0.5`

// schemaKey tries to take the advisory key of the name until this transaction ends, as one of those
// who want _slots. It is the key of [NewSession] and [LockTx].
const schemaKey = `(CASE WHEN _slots = 0 THEN pg_try_advisory_xact_lock(hashtextextended(_name, 0))
      ELSE pg_try_advisory_xact_lock_shared(hashtextextended(_name, 0)) END)`

// schemaLeased is whether there are leases that may keep out a transaction or session which has the name's
// advisory key. Most names have none: the other half costs a subtransaction.
const schemaLeased = `EXISTS (SELECT FROM lockstile_lease l WHERE l.name = _name) AND NOT lockstile_free(_name, CASE WHEN _shared THEN -1 ELSE 0 END)`

// schemaAlive is whether the waiter _first is alive.
const schemaAlive = `_first.patient > clock_timestamp() AND (_first.channel = ''
      OR NOT pg_try_advisory_xact_lock_shared(1819239276, hashtext(_first.channel)))`

// schemaHolders is a row for each holder of a name, or one alone ([poolRunner.look]).
const schemaHolders = `TABLE (name text, held boolean, holder text, token bigint, time_left bigint, waiters bigint, slots integer, slot integer)`
