package postgres

// A row of lockstile_session says who has an advisory lock. Inspect and List read it. The
// lock is the server's, and ends with the connection; a row that stays behind means nothing.
// A crash of the server ends the locks and empties the table, which is not logged.
//
// A token must outlast a crash, but not every lock should wait for the disk. nextval logs
// 32 numbers at once, so most numbers are on disk long before they are drawn, unless the
// transaction that logged them is still under way. lockstile_known says how far the
// sequence is known to be logged on disk: a row that others can see was committed, and
// that commit waited for the disk. After a crash the server reads nothing that was logged
// before its last checkpoint. So the first draw after a checkpoint logs the sequence
// again, and further than before. What has to be on disk is therefore not the number
// that was drawn, but the end up to which the sequence is logged now. Where that is not
// known, lockstile_session_sync waits for the disk; a message in the log makes sure that
// there is something to wait for. Where there is a synchronous standby, every grant waits
// for it: a server that was replaced and does not know it must not go on granting.
//
// That wait is a transaction on another connection. It must lead to the same server: what
// a successor has on its disk says nothing of this token. A successor does not have the
// row. On the connection with the locks nothing waits for a disk or a standby
// (synchronous_commit is off there): a sign of life could not be given meanwhile, and all
// locks would be lost when the standby is away.
//
// That end is the last number that was drawn plus log_cnt: a draw adds one to the first
// and takes one from the other. Others may draw between our readings of the two. What we
// note must never be too great: our own number plus a log_cnt that is read later. What we
// compare must never be too small: a log_cnt plus a last number that is read later. While
// another draw logs the sequence, log_cnt is 0 too early: then nothing counts as known.
//
// lockstile_session_patience sets for how long the server keeps a connection on which
// nothing arrives. The process believes in a lock for a TTL after the last question that
// was answered. The server keeps the connection for longer, by a second at least, and not
// for much longer, for nothing else would end the connection of a process that vanished.
// The function compares before it sets, because setting costs more. A time of keep-alives
// is 32,767 seconds at most: what is left of a longer one is between them.
//
// lockstile_session_open gets a connection ready. It lifts the limits on the time of
// statements: these wait for as long as their process wants. It also deletes the rows of
// connections that are gone, but waits for no row that somebody has locked. It returns its
// process, when that began, and how many locks of all kinds the server has room for.
//
// lockstile_session_acquire returns the first of 1,024 tokens that are this grant's,
// or 0 if somebody has the lock, and whether they are known to be on disk. The token is drawn
// once the lock is there, so nobody can come between a draw and its grant. If the connection
// has the lock _already, shared, for another attempt, the server would grant it once more,
// though somebody waits to have it alone. So it is not asked for again, but looked for that
// waiter. Nor is it asked for what it has under another name with the same hash.
//
// lockstile_session_wait waits for a lock, and returns whether it is there. The server ends a
// connection that is silent, but not one that waits: so a writer whose process is cut off
// would keep later readers out for as long as others read. Its wait has an end therefore,
// after which it is asked to wait on. Its turn, another advisory lock, it keeps meanwhile:
// who has that _already goes first, and who waits comes behind it. A dead writer's turn
// ends with its connection, which is silent from then on. The end may meet the grant: then the lock
// is there, though the statement has failed, and to ask for it again would take it twice.
//
// lockstile_session_release gives back the lock that was granted with a token. An
// advisory lock outlives the error of the statement that took it: then there is no
// row, and it is given back with the token 0, and so is the turn. What
// another attempt of the same connection holds under this key stays. Of the attempts that share the connection's
// one lock the _last gives it back.
//
// lockstile_session_gone returns whether a connection is gone: then its locks are free, for
// they go first. With _end it also ends the connection, if it is still there.
//
// lockstile_session_break ends the connections that have a lock with one of these tokens, or
// without tokens all that have it. It returns whether it has ended one, and whether a prepared
// transaction, which has no connection, has the lock.
//
// lockstile_session_locks returns, for each key, whose connections have the lock, how
// many wait, and whether those who have it share it (pg_advisory_lock_shared). A connection
// is null where a prepared transaction has it.
const schemaSession = `
CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_session (
  key    bigint NOT NULL,
  name   text COLLATE "C" NOT NULL,
  pid    integer NOT NULL,
  token  bigint NOT NULL,
  holder text NOT NULL,
  ttl    bigint NOT NULL,
  PRIMARY KEY (key, token)
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_known (
  one  boolean PRIMARY KEY,
  upto bigint NOT NULL
);

CREATE OR REPLACE FUNCTION lockstile_session_patience_` + schemaVersion + `(_patience bigint) RETURNS void LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _seconds bigint := ceil(_patience / 1000.0);
BEGIN
  IF current_setting('idle_session_timeout')::interval <> _patience * interval '1 millisecond' THEN
    PERFORM set_config(c.name, c.value::text, false) FROM (VALUES ('idle_session_timeout', _patience), ('tcp_user_timeout', _patience),
      ('tcp_keepalives_idle', least(_seconds, 32767)), ('tcp_keepalives_interval', least(greatest(_seconds - 32767, 1), 32767))) c(name, value);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_open_` + schemaVersion + `(_patience bigint, _synced boolean, OUT _pid integer, OUT _began bigint, OUT _room bigint)
LANGUAGE plpgsql` + schemaSafe + ` AS $$
BEGIN` + schemaReads + schemaStandby + `
  PERFORM set_config(c.name, c.value, false) FROM (VALUES ('statement_timeout', '0'), ('lock_timeout', '0'),
    ('transaction_timeout', '0'), ('idle_session_timeout', '0'), ('tcp_keepalives_count', '3'), ('synchronous_commit', 'off')) c(name, value)
    WHERE current_setting(c.name, true) IS NOT NULL; -- transaction_timeout came with PostgreSQL 17
  PERFORM lockstile_session_patience_` + schemaVersion + `(_patience);
  BEGIN
    PERFORM set_config('client_connection_check_interval', '1000', false);
  EXCEPTION WHEN invalid_parameter_value THEN -- not on this server's system: the end of a waiter is seen when it is granted
  END;
  DELETE FROM lockstile_session s USING (SELECT o.key, o.pid FROM lockstile_session o
    LEFT JOIN pg_stat_activity a ON a.pid = o.pid AND a.pid <> pg_backend_pid() WHERE a.pid IS NULL
    FOR UPDATE OF o SKIP LOCKED) d
  WHERE s.key = d.key AND s.pid = d.pid;
  SELECT a.pid, coalesce(extract(epoch FROM a.backend_start) * 1000000, 0) INTO _pid, _began
    FROM pg_stat_activity a WHERE a.pid = pg_backend_pid();
  _room := current_setting('max_locks_per_transaction')::bigint
    * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint);
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_wait_` + schemaVersion + `(_name text, _shared boolean, _already boolean, _patience bigint)
RETURNS boolean LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _key bigint := hashtextextended(_name, 0);
  _turn bigint := hashtextextended(_name, 1);
BEGIN
  IF _shared THEN
    PERFORM pg_advisory_lock_shared(_turn);
    PERFORM pg_advisory_lock_shared(_key);
    RETURN pg_advisory_unlock_shared(_turn);
  END IF;
  IF NOT _already THEN
    PERFORM pg_advisory_lock(_turn);
  END IF;
  PERFORM set_config('lock_timeout', _patience::text, true);
  PERFORM pg_advisory_lock(_key);
  RETURN pg_advisory_unlock(_turn);
EXCEPTION WHEN lock_not_available THEN
  RETURN CASE WHEN pg_backend_pid() = ANY ((SELECT l.pids FROM lockstile_session_locks_` + schemaVersion + `() l WHERE l.key = _key)::integer[])
    THEN pg_advisory_unlock(_turn) ELSE false END;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_acquire_` + schemaVersion + `(_name text, _holder text, _ttl bigint, _wait boolean, _patience bigint,
  _shared boolean, _already boolean, OUT _token bigint, OUT _known boolean)
LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _key bigint := hashtextextended(_name, 0);
  _turn bigint := hashtextextended(_name, 1);
  _ahead bigint;
BEGIN
  _token := 0;
  _known := true;
  PERFORM lockstile_session_patience_` + schemaVersion + `(_patience);
  IF EXISTS (SELECT FROM lockstile_session s WHERE s.key = _key AND s.pid = pg_backend_pid() AND s.name <> _name) THEN
    RETURN;
  END IF;
  IF _wait THEN
    _wait := lockstile_session_wait_` + schemaVersion + `(_name, _shared, _already, _patience);
  ELSIF NOT _shared THEN
    _wait := pg_try_advisory_lock(_key);
  ELSIF pg_try_advisory_lock_shared(_turn) THEN
    _wait := CASE WHEN _already THEN NOT EXISTS (SELECT FROM lockstile_session_locks_` + schemaVersion + `() l WHERE l.key = _key AND l.waiters > 0)
      ELSE pg_try_advisory_lock_shared(_key) END;
    PERFORM pg_advisory_unlock_shared(_turn);
  END IF;
  IF NOT _wait THEN
    RETURN;
  END IF;
  SELECT nextval('lockstile_token') * 1024 INTO _token` + schemaDraw + `;` + schemaNote + `
  SELECT t.log_cnt INTO _ahead FROM lockstile_token t;
  INSERT INTO lockstile_session (key, name, pid, token, holder, ttl)
  VALUES (_key, _name, pg_backend_pid(), _token, _holder, _ttl)
  RETURNING coalesce((SELECT k.upto >= t.last_value + _ahead AND (_ahead > 0 OR t.last_value = _token / 1024)
    FROM lockstile_known k, lockstile_token t), false) INTO _known;
  _known := _known AND current_setting('synchronous_standby_names') = '';
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_sync_` + schemaVersion + `(_name text, _token bigint, _synced boolean) RETURNS boolean LANGUAGE plpgsql` + schemaSafe + ` AS $$
BEGIN` + schemaStandby + schemaSync + `
  IF NOT EXISTS (SELECT FROM lockstile_session s WHERE s.key = hashtextextended(_name, 0) AND s.token = _token) THEN
    RAISE EXCEPTION 'the lock is not on this server' USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  PERFORM pg_logical_emit_message(true, 'lockstile', '');
  IF pg_try_advisory_xact_lock(1819239277, 0) THEN
    INSERT INTO lockstile_known AS k (one, upto) SELECT true, _token / 1024 + t.log_cnt FROM lockstile_token t
    ON CONFLICT (one) DO UPDATE SET upto = excluded.upto WHERE k.upto < excluded.upto;
  END IF;
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_release_` + schemaVersion + `(_name text, _token bigint, _shared boolean, _last boolean) RETURNS boolean LANGUAGE plpgsql` + schemaSafe + ` AS $$
DECLARE
  _key bigint := hashtextextended(_name, 0);
  _turn bigint := hashtextextended(_name, 1);
  _done boolean;
BEGIN
  DELETE FROM lockstile_session s WHERE s.key = _key AND s.pid = pg_backend_pid() AND s.token = _token;
  _done := FOUND;
  IF _token = 0 AND _shared THEN
    PERFORM pg_advisory_unlock_shared(_turn);
  ELSIF _token = 0 THEN
    PERFORM pg_advisory_unlock(_turn);
  END IF;
  IF NOT _done AND EXISTS (SELECT FROM lockstile_session s WHERE s.key = _key AND s.pid = pg_backend_pid()) THEN
    RETURN false;
  END IF;
  RETURN CASE WHEN NOT _last THEN true WHEN _shared THEN pg_advisory_unlock_shared(_key) ELSE pg_advisory_unlock(_key) END;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_locks_` + schemaVersion + `() RETURNS TABLE (key bigint, pids integer[], waiters bigint, shared boolean)
LANGUAGE sql` + schemaSafe + ` AS $$
  SELECT (p.classid::bigint << 32) | p.objid::bigint, array_agg(DISTINCT p.pid) FILTER (WHERE p.granted), count(*) FILTER (WHERE NOT p.granted),
    bool_and(p.mode = 'ShareLock') FILTER (WHERE p.granted)
  FROM pg_locks p WHERE p.locktype = 'advisory' AND p.objsubid = 1
    AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  GROUP BY 1
$$;

CREATE OR REPLACE FUNCTION lockstile_session_gone_` + schemaVersion + `(_pid integer, _began bigint, _end boolean) RETURNS boolean
LANGUAGE sql` + schemaSafe + ` AS $$
  SELECT count(CASE WHEN _end THEN pg_terminate_backend(a.pid) ELSE true END) = 0 AND (_end OR _pid <> 0)
  FROM pg_stat_activity a WHERE a.pid = _pid AND coalesce(extract(epoch FROM a.backend_start) * 1000000, _began) = _began
$$;

CREATE OR REPLACE FUNCTION lockstile_session_break_` + schemaVersion + `(_name text, _tokens bigint[], OUT _broken boolean, OUT _prepared boolean)
LANGUAGE sql` + schemaSafe + ` AS $$
  SELECT count(pg_terminate_backend(p.pid)) > 0, count(*) > count(p.pid)
  FROM lockstile_session_locks_` + schemaVersion + `() l, unnest(l.pids) p(pid)
  WHERE l.key = hashtextextended(_name, 0) AND (cardinality(_tokens) = 0
    OR EXISTS (SELECT FROM lockstile_session s WHERE s.key = l.key AND s.pid = p.pid AND s.token = ANY (_tokens)))
$$;

CREATE OR REPLACE FUNCTION lockstile_session_inspect_` + schemaVersion + `(_name text)` + sessionInfo + `
  (SELECT _name AS name, hashtextextended(_name, 0) AS key)` + sessionHeld + ` ORDER BY 4
$$;

CREATE OR REPLACE FUNCTION lockstile_session_list_` + schemaVersion + `(_prefix text)` + sessionInfo + `
  (SELECT DISTINCT o.name, o.key FROM lockstile_session o WHERE starts_with(o.name, _prefix))` + sessionHeld + `
  WHERE s.pid IS NOT NULL ORDER BY 1, 4
$$;
`

const (
	// The time left is the TTL, counted from when the server last heard the holder.
	sessionInfo = ` RETURNS TABLE (name text, held boolean, holder text,
  token bigint, time_left bigint, waiters bigint, slots integer, slot integer) LANGUAGE sql` + schemaSafe + ` AS $$
  SELECT n.name, l.pids IS NOT NULL, coalesce(s.holder, ''), coalesce(s.token, 0), CASE WHEN s.ttl > 0 THEN
      greatest(1, s.ttl - coalesce(extract(epoch FROM clock_timestamp() - a.state_change) * 1000, 0)::bigint) ELSE 0 END,
    coalesce(l.waiters, 0) + coalesce(t.waiters, 0), CASE WHEN l.shared THEN -1 ELSE 0 END, 0
  FROM`
	sessionHeld = ` n LEFT JOIN lockstile_session_locks_` + schemaVersion + `() l ON l.key = n.key
  LEFT JOIN lockstile_session_locks_` + schemaVersion + `() t ON t.key = hashtextextended(n.name, 1)
  LEFT JOIN unnest(l.pids) p(pid) ON true
  LEFT JOIN lockstile_session s ON s.key = n.key AND s.name = n.name AND s.pid = p.pid
  LEFT JOIN pg_stat_activity a ON a.pid = s.pid`
)

// The statements that programs send (see sqlAcquire).
const (
	sessionOpen = `SELECT * FROM lockstile_session_open_` + schemaVersion + `($1::bigint, $2::boolean)`

	sessionAcquire = `SELECT * FROM lockstile_session_acquire_` + schemaVersion + `($1::pg_catalog.text, $2::pg_catalog.text, $3::bigint, $4::boolean,
		$5::bigint, $6::boolean, $7::boolean)`
	sessionSync     = `SELECT lockstile_session_sync_` + schemaVersion + `($1::pg_catalog.text, $2::bigint, $3::boolean)`
	sessionRelease  = `SELECT lockstile_session_release_` + schemaVersion + `($1::pg_catalog.text, $2::bigint, $3::boolean, $4::boolean)`
	sessionPatience = `SELECT lockstile_session_patience_` + schemaVersion + `($1::bigint)`
	sessionGone     = `SELECT lockstile_session_gone_` + schemaVersion + `($1::integer, $2::bigint, $3::boolean)`
	sessionForce    = `SELECT * FROM lockstile_session_break_` + schemaVersion + `($1::pg_catalog.text, $2::bigint[])`
	sessionInspect  = `SELECT * FROM lockstile_session_inspect_` + schemaVersion + `($1::pg_catalog.text)`
	sessionList     = `SELECT * FROM lockstile_session_list_` + schemaVersion + `($1::pg_catalog.text)`
)
