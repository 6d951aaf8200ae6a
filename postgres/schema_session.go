package postgres

// A row of lockstile_session says what a connection has locked last: Inspect, List and Break read it.
// The lock is the server's, and ends with the connection. A row counts only while its connection has the
// advisory key of its name.
//
// A token must outlast a crash, but not every lock should wait for the disk. nextval logs
// 32 numbers at once, so most numbers are on disk long before they are drawn, unless the
// transaction that logged them is still under way. lockstile_known says how far the
// sequence is known to be logged on disk: a row that others can see was committed, and
// that commit waited for the disk. After a crash the server reads nothing that was logged
// before its last checkpoint. So the first draw after a checkpoint logs the sequence
// again, and further than before. What has to be on disk is therefore not the number
// that was drawn, but the end up to which the sequence is logged now. Where that is not
// known, the grant waits for the disk; a message in the log makes sure that
// there is something to wait for. Where [Options].SyncStandby is set, every grant waits for the
// standby: a server that was replaced and does not know it must not go on granting. No other grant waits
// for a standby: while that is away, it would hold the lock of a waiter that may be dead.
//
// That end is the last number that was drawn plus log_cnt: a draw adds one to the first
// and takes one from the other. Others may draw between our readings of the two. What we
// note must never be too great: our own number plus a log_cnt that is read later. What we
// compare must never be too small: a log_cnt plus a last number that is read later. While
// another draw logs the sequence, log_cnt is 0 too early: then nothing counts as known.
//
// lockstile_watch has the server look each second whether the client is there, in the statements that follow.
//
// lockstile_session_open gets a connection ready. It lifts the limits on the time of
// statements, and deletes the rows of connections that are gone, but waits for no row that
// somebody has locked.
//
// lockstile_session_acquire returns the first of 1,024 tokens that are this grant's, or 0 if somebody has
// the lock. The token is drawn
// once the lock is there, so nobody can come between a draw and its grant. If it may wait, it says so in a message
// (taken) as soon as it begins to wait, and waits for a stretch: a statement keeps a snapshot for as long as it goes on,
// for which VACUUM and CREATE INDEX CONCURRENTLY wait.
//
// A writer that begins _again takes a turn, another advisory key, and keeps it until it has the lock. A
// reader needs the turn for a moment to come in. So between two stretches, when the writer stands in no queue, no reader
// overtakes it, but for those that came within its first stretch: it would starve. (With the turn from the first, each lock would
// wake two waiters.) The end of a stretch may meet the grant: then the connection has the key, though the statement
// has failed. So it tries once more, which succeeds if it has the key already. What it has taken twice it gives back
// with everything else (pg_advisory_unlock_all).
//
// A lease may have the lock, which no queue knows. Whoever has the key then keeps it, so that no other
// lease begins, and looks ten times a second (lockstile_free).
//
// _patience says for how many milliseconds the server keeps the connection if it hears nothing; 0 changes nothing. A setting of
// our own remembers it, so that a lock which asks for the same patience as the one before sets nothing. The holder believes for a
// TTL after it sent the last question that was answered. The server ends the connection a second later than a TTL after its
// answer. So the holder stops believing first. Nothing else would end the connection of a process that has vanished. PostgreSQL
// waits for 32,767 seconds at most before the first keep-alive: what is left of a longer patience passes between that and the
// next ones.
//
// lockstile_session_locks are the advisory locks of this database. A connection is null where a prepared transaction has the lock.
//
// lockstile_session_break ends the connections that have a lock with one of these tokens, or
// without tokens all that have it. It returns whether it has ended one, and whether a prepared
// transaction, which has no connection, has the lock.
const schemaSession = `
CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_session (
  pid    integer PRIMARY KEY,
  name   text COLLATE "C" NOT NULL,
  token  bigint NOT NULL,
  holder text NOT NULL,
  ttl    bigint NOT NULL
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_known (
  one  boolean PRIMARY KEY,
  upto bigint NOT NULL
);

CREATE OR REPLACE FUNCTION lockstile_watch(_local boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('client_connection_check_interval', '1000', _local)
    WHERE NOT current_setting('client_connection_check_interval')::interval BETWEEN '1 millisecond' AND '1 second';
EXCEPTION WHEN invalid_parameter_value THEN -- not on this server's system: the end of a waiter is seen when its statement ends
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_open_` + schemaVersion + `() RETURNS void LANGUAGE plpgsql` + schemaSafe + ` AS $$
BEGIN` + schemaReads + `
  PERFORM set_config(c.name, c.value, false) FROM (VALUES ('statement_timeout', '0'), ('lock_timeout', '0'),
    ('transaction_timeout', '0'), ('tcp_keepalives_count', '3'), ('synchronous_commit', 'off')) c(name, value)
    WHERE current_setting(c.name, true) IS NOT NULL; -- transaction_timeout came with PostgreSQL 17
  PERFORM lockstile_watch(false);
  DELETE FROM lockstile_session s USING (SELECT o.pid FROM lockstile_session o
    LEFT JOIN pg_stat_activity a ON a.pid = o.pid AND a.pid <> pg_backend_pid() WHERE a.pid IS NULL
    FOR UPDATE OF o SKIP LOCKED) d WHERE s.pid = d.pid;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_try(_name text, _shared boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _turn bigint := hashtextextended(_name, 1);
  _got boolean := false;
BEGIN
  IF NOT _shared THEN
    RETURN pg_try_advisory_lock(hashtextextended(_name, 0));
  ELSIF pg_try_advisory_lock_shared(_turn) THEN
    _got := pg_try_advisory_lock_shared(hashtextextended(_name, 0));
    PERFORM pg_advisory_unlock_shared(_turn);
  END IF;
  RETURN _got;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_acquire_` + schemaVersion + `(_name text, _holder text, _ttl bigint, _shared boolean,
  _stretch bigint, _again boolean, _patience bigint, _synced boolean) RETURNS bigint LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _key bigint := hashtextextended(_name, 0);
  _turn bigint := hashtextextended(_name, 1);
  _seconds bigint := ceil(_patience / 1000.0);
  _ends timestamptz := clock_timestamp() + _stretch * interval '1 millisecond';
  _token bigint;
  _ahead bigint;
  _known boolean;
BEGIN` + schemaReads + schemaStandby + `
  IF _patience > 0 AND current_setting('lockstile.patience', true) IS DISTINCT FROM _patience::text THEN
    PERFORM set_config(c.name, c.value::text, false) FROM (VALUES ('idle_session_timeout', _patience), ('tcp_user_timeout', _patience),
      ('tcp_keepalives_idle', least(_seconds, 32767)), ('tcp_keepalives_interval', least(greatest(_seconds - 32767, 1), 32767)),
      ('lockstile.patience', _patience)) c(name, value);
  END IF;
  IF NOT lockstile_session_try(_name, _shared) THEN
    IF _stretch = 0 THEN
      RETURN 0;
    END IF;
    RAISE INFO '` + sessionTaken + `';
    BEGIN
      PERFORM set_config('lock_timeout', _stretch::text, true);
      PERFORM CASE WHEN _shared THEN pg_advisory_lock_shared(_turn) WHEN _again THEN pg_advisory_lock(_turn) END;
      PERFORM set_config('lock_timeout', greatest(1, extract(epoch FROM _ends - clock_timestamp()) * 1000)::bigint::text, true);
      PERFORM CASE WHEN _shared THEN pg_advisory_lock_shared(_key) ELSE pg_advisory_lock(_key) END;
      PERFORM CASE WHEN _shared THEN pg_advisory_unlock_shared(_turn) END;
      PERFORM set_config('lock_timeout', '0', true); -- what follows may wait for a renewal
    EXCEPTION WHEN lock_not_available THEN
      IF NOT lockstile_session_try(_name, _shared) THEN
        RETURN 0;
      END IF;
      _again := true;
    END;
  END IF;
  IF _again THEN
    WHILE EXISTS (SELECT FROM lockstile_session_locks() l WHERE l.key = _turn AND l.pid = pg_backend_pid() AND l.granted) LOOP
      PERFORM CASE WHEN _shared THEN pg_advisory_unlock_shared(_turn) ELSE pg_advisory_unlock(_turn) END;
    END LOOP;
  END IF;
  IF ` + schemaLeased + ` THEN
    IF _stretch = 0 THEN
      PERFORM CASE WHEN _shared THEN pg_advisory_unlock_shared(_key) ELSE pg_advisory_unlock(_key) END;
      RETURN 0;
    END IF;
    RAISE INFO '` + sessionTaken + `';
    DELETE FROM lockstile_session s WHERE s.pid = pg_backend_pid(); -- it has the key, and no lock
    WHILE ` + schemaLeased + ` LOOP
      IF clock_timestamp() > _ends THEN
        RETURN 0;
      END IF;
      PERFORM pg_sleep(0.1);
    END LOOP;
  END IF;
  SELECT nextval('lockstile_token') * 1024 INTO _token` + schemaDraw + `;` + schemaNote + `
  SELECT t.log_cnt INTO _ahead FROM lockstile_token t;
  INSERT INTO lockstile_session AS s (pid, name, token, holder, ttl) VALUES (pg_backend_pid(), _name, _token, _holder, _ttl)
  ON CONFLICT (pid) DO UPDATE SET name = excluded.name, token = excluded.token, holder = excluded.holder, ttl = excluded.ttl
  RETURNING coalesce((SELECT k.upto >= t.last_value + _ahead AND (_ahead > 0 OR t.last_value = _token / 1024)
    FROM lockstile_known k, lockstile_token t), false) INTO _known;
  IF _synced OR NOT _known THEN
    PERFORM set_config('synchronous_commit', CASE WHEN _synced THEN 'on' ELSE 'local' END, true);
    PERFORM pg_logical_emit_message(true, 'lockstile', '');
    IF NOT _known AND pg_try_advisory_xact_lock(1819239277, 0) THEN
      INSERT INTO lockstile_known AS k (one, upto) SELECT true, _token / 1024 + t.log_cnt FROM lockstile_token t
      ON CONFLICT (one) DO UPDATE SET upto = excluded.upto WHERE k.upto < excluded.upto;
    END IF;
  END IF;
  RETURN _token;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_locks() RETURNS TABLE (key bigint, pid integer, granted boolean, shared boolean) LANGUAGE sql AS $$
  SELECT (p.classid::bigint << 32) | p.objid::bigint, p.pid, p.granted, p.mode = 'ShareLock'
  FROM pg_locks p WHERE p.locktype = 'advisory' AND p.objsubid = 1
    AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$$;

CREATE OR REPLACE FUNCTION lockstile_session_break_` + schemaVersion + `(_name text, _tokens bigint[], OUT _broken boolean, OUT _prepared boolean)
LANGUAGE sql` + schemaSafe + ` AS $$
  SELECT count(pg_terminate_backend(l.pid)) > 0, count(*) > count(l.pid)
  FROM lockstile_session_locks() l WHERE l.key = hashtextextended(_name, 0) AND l.granted AND (cardinality(_tokens) = 0
    OR EXISTS (SELECT FROM lockstile_session s WHERE s.pid = l.pid AND s.name = _name AND s.token = ANY (_tokens)))
$$;

CREATE OR REPLACE FUNCTION lockstile_session_inspect_` + schemaVersion + `(_names text[]) RETURNS ` + schemaHolders + ` LANGUAGE sql` + schemaSafe + ` AS $$
  WITH locks AS MATERIALIZED (SELECT * FROM lockstile_session_locks())
  SELECT n.name, l.key IS NOT NULL, coalesce(s.holder, ''), coalesce(s.token, 0), CASE WHEN s.ttl > 0 THEN
      greatest(1, s.ttl - coalesce(extract(epoch FROM clock_timestamp() - a.state_change) * 1000, 0)::bigint) ELSE 0 END, -- counted from when the server last heard the holder
    (SELECT count(DISTINCT w.pid) FROM locks w WHERE NOT w.granted AND w.key IN (hashtextextended(n.name, 0), hashtextextended(n.name, 1))),
    CASE WHEN l.shared THEN -1 ELSE 0 END, 0
  FROM unnest(_names) n(name) LEFT JOIN locks l ON l.key = hashtextextended(n.name, 0) AND l.granted
    LEFT JOIN lockstile_session s ON s.pid = l.pid AND s.name = n.name LEFT JOIN pg_stat_activity a ON a.pid = s.pid
  ORDER BY 1, 4
$$;

CREATE OR REPLACE FUNCTION lockstile_session_list_` + schemaVersion + `(_prefix text) RETURNS ` + schemaHolders + ` LANGUAGE sql` + schemaSafe + ` AS $$
  SELECT i.* FROM lockstile_session_inspect_` + schemaVersion + `(ARRAY(SELECT DISTINCT s.name FROM lockstile_session s WHERE starts_with(s.name, _prefix))) i
  WHERE i.token > 0 ORDER BY i.name, i.token
$$;
`

// sessionTaken is the message that says that the lock is taken, while the statement goes on. A message of this
// level always comes, and at once.
const sessionTaken = "lockstile: the lock is taken"

// The statements that programs send (see sqlAcquire).
const (
	sessionOpen    = `SELECT lockstile_session_open_` + schemaVersion + `()`
	sessionAcquire = `SELECT lockstile_session_acquire_` + schemaVersion + `($1::pg_catalog.text, $2::pg_catalog.text, $3::bigint, $4::boolean,
		$5::bigint, $6::boolean, $7::bigint, $8::boolean)`
	sessionRelease = `SELECT pg_catalog.pg_advisory_unlock_all()`
	sessionForce   = `SELECT * FROM lockstile_session_break_` + schemaVersion + `($1::pg_catalog.text, $2::bigint[])`
	sessionInspect = `SELECT * FROM lockstile_session_inspect_` + schemaVersion + `(ARRAY[$1::pg_catalog.text])`
	sessionList    = `SELECT * FROM lockstile_session_list_` + schemaVersion + `($1::pg_catalog.text)`

	// A process of the server by its number and its beginning: a later one may have the same number. Both are the
	// login's to ask for, whatever role a hook has set. So the role is the login's, until the statement ends, before the
	// function is called whose argument this is.
	sessionWho = `SELECT a.pid, coalesce(pg_catalog."extract"('epoch', a.backend_start)::pg_catalog.text, '') FROM pg_catalog.pg_stat_get_activity(
		CASE WHEN pg_catalog.set_config('role', 'none', true) IS NOT NULL THEN pg_catalog.pg_backend_pid() END) a`
	// A login that a hook has changed since may not ask, and is told no beginning: that is not gone.
	sessionGone = `SELECT coalesce((SELECT a.backend_start IS NOT NULL AND pg_catalog.pg_terminate_backend(a.pid, 500::bigint) FROM pg_catalog.pg_stat_get_activity(
		CASE WHEN pg_catalog.set_config('role', 'none', true) IS NOT NULL THEN $1::integer END) a
		WHERE a.backend_start IS NULL OR pg_catalog."extract"('epoch', a.backend_start)::pg_catalog.text OPERATOR(pg_catalog.=) $2::pg_catalog.text), true)`
)
