package postgres

// A row of lockstile_session says who has an advisory lock: for those who look on,
// and for its own connection, which the server would grant the same key again and
// again. The lock itself is the server's, and ends with the connection; a row that
// stays behind means nothing. A crash of the server ends the locks and empties the
// table, which is not logged.
//
// A token must outlast a crash, but not every lock should have to wait for the disk.
// nextval logs 32 numbers at once, so most of them are on disk long before they are
// drawn, but not while the transaction that logged them is still under way. So
// lockstile_known says up to which number they are: a row that others can see was
// committed, and that commit waited for the disk. A greater number makes its own
// commit wait; a message in the log makes sure that there is something to wait for.
// log_cnt is read after the draw: if others have drawn since, the sum is too small, and
// never too great. A crash empties the table. Where there is a synchronous standby, every
// draw waits for it: a server that was replaced and does not know it must not go on
// granting.
//
// lockstile_session_patience says for how long the server keeps a connection of which
// nothing is heard. Its process believes in a lock for a TTL after it was heard of, and
// the server keeps it longer than that, by a second at least, and not much longer:
// nothing else would end the connection of a process that vanished. 0 changes nothing.
//
// lockstile_session_open gets a connection ready. Limits on the time of statements are
// for others: these wait for as long as their process wants.
//
// lockstile_session_acquire answers the first of 1,024 tokens that are this grant's,
// or 0 if somebody has the lock, which may be this connection itself: then the row is
// its own, and what the server granted once more is given back. It draws when the lock
// is there, so nobody can come between a draw and its grant.
//
// lockstile_session_release gives back the lock that was granted with a token. An
// advisory lock outlives the error of the statement that took it: then there is no
// row, and it is given back with the token 0. What another attempt of the same
// connection holds under this key stays.
//
// lockstile_session_end ends a connection, and answers whether it is gone: then its
// locks are free, for they go first.
const schemaSession = `
CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_session (
  key    bigint PRIMARY KEY,
  name   text COLLATE "C" NOT NULL,
  pid    integer NOT NULL,
  token  bigint NOT NULL,
  holder text NOT NULL,
  ttl    bigint NOT NULL
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE IF NOT EXISTS lockstile_known (
  one  boolean PRIMARY KEY,
  upto bigint NOT NULL
);

CREATE OR REPLACE FUNCTION lockstile_session_patience_` + schemaVersion + `(_patience bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config(c.name, c.value::text, false) FROM (VALUES ('idle_session_timeout', _patience), ('tcp_user_timeout', _patience),
    ('tcp_keepalives_idle', least(ceil(_patience / 1000.0)::bigint, 32767))) c(name, value) WHERE _patience > 0;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_open_` + schemaVersion + `(_patience bigint, _first boolean,
  OUT _pid integer, OUT _began bigint, OUT _standbys text)
LANGUAGE plpgsql AS $$
BEGIN` + schemaReads + `
  PERFORM lockstile_session_patience_` + schemaVersion + `(_patience);
  PERFORM set_config(c.name, c.value::text, false) FROM (VALUES ('statement_timeout', 0), ('lock_timeout', 0),
    ('tcp_keepalives_interval', 1), ('tcp_keepalives_count', 3)) c(name, value);
  BEGIN
    PERFORM set_config('client_connection_check_interval', '1000', false);
  EXCEPTION WHEN invalid_parameter_value THEN -- not on this server's system: the end of a waiter is seen when it is granted
  END;
  IF _first THEN
    DELETE FROM lockstile_session s USING (SELECT o.key, o.pid FROM lockstile_session o
      LEFT JOIN pg_stat_activity a ON a.pid = o.pid AND a.pid <> pg_backend_pid() WHERE a.pid IS NULL) d
    WHERE s.key = d.key AND s.pid = d.pid;
  END IF;
  _standbys := current_setting('synchronous_standby_names');
  SELECT a.pid, extract(epoch FROM a.backend_start) * 1000000 INTO _pid, _began
    FROM pg_stat_activity a WHERE a.pid = pg_backend_pid();
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_flush(_number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN` + schemaSync + `
  PERFORM pg_logical_emit_message(true, 'lockstile', '');
  IF pg_try_advisory_xact_lock(1819239277, 0) THEN
    INSERT INTO lockstile_known AS k (one, upto) SELECT true, _number + t.log_cnt FROM lockstile_token t
    ON CONFLICT (one) DO UPDATE SET upto = excluded.upto WHERE k.upto < excluded.upto;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_acquire_` + schemaVersion + `(_name text, _holder text, _ttl bigint, _wait boolean, _patience bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _key bigint := pg_catalog.hashtextextended(_name, 0);
  _number bigint;
  _known boolean;
BEGIN
  IF _patience > 0 THEN
    PERFORM lockstile_session_patience_` + schemaVersion + `(_patience);
  END IF;
  IF _wait THEN
    _wait := pg_advisory_lock(_key) IS NULL;
  ELSIF NOT pg_try_advisory_lock(_key) THEN
    RETURN 0;
  END IF;
  _number := nextval('lockstile_token');
  INSERT INTO lockstile_session AS s (key, name, pid, token, holder, ttl)
  VALUES (_key, _name, pg_backend_pid(), _number * 1024, _holder, _ttl)
  ON CONFLICT (key) DO UPDATE SET name = excluded.name, pid = excluded.pid, token = excluded.token,
    holder = excluded.holder, ttl = excluded.ttl WHERE s.pid <> excluded.pid
  RETURNING coalesce((SELECT k.upto >= _number FROM lockstile_known k), false) INTO _known;
  IF _known IS NULL THEN
    _wait := pg_advisory_unlock(_key);
    RETURN 0;
  END IF;
  IF NOT _known OR current_setting('synchronous_standby_names') <> '' THEN
    PERFORM lockstile_session_flush(_number);
  END IF;
  RETURN _number * 1024;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_release_` + schemaVersion + `(_name text, _token bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _key bigint := pg_catalog.hashtextextended(_name, 0);
BEGIN
  DELETE FROM lockstile_session s WHERE s.key = _key AND s.pid = pg_backend_pid() AND s.token = _token;
  IF NOT FOUND AND EXISTS (SELECT FROM lockstile_session s WHERE s.key = _key AND s.pid = pg_backend_pid()) THEN
    RETURN false;
  END IF;
  RETURN pg_advisory_unlock(_key);
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_locks_` + schemaVersion + `() RETURNS TABLE (key bigint, pid integer, granted boolean) LANGUAGE sql AS $$
  SELECT (p.classid::bigint << 32) | p.objid::bigint, p.pid, p.granted FROM pg_locks p
  WHERE p.locktype = 'advisory' AND p.mode = 'ExclusiveLock' AND p.objsubid = 1
    AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$$;

CREATE OR REPLACE FUNCTION lockstile_session_force_` + schemaVersion + `(_name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_terminate_backend(l.pid) FROM lockstile_session_locks_` + schemaVersion + `() l
    WHERE l.key = pg_catalog.hashtextextended(_name, 0) AND l.granted;
  RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION lockstile_session_end_` + schemaVersion + `(_pid integer, _began bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_terminate_backend(a.pid) FROM pg_stat_activity a
    WHERE a.pid = _pid AND coalesce(extract(epoch FROM a.backend_start) * 1000000, _began) = _began;
  RETURN NOT FOUND;
END $$;
`

const (
	sessionOpen    = `SELECT * FROM lockstile_session_open_` + schemaVersion + `($1, $2)`
	sessionAcquire = `SELECT lockstile_session_acquire_` + schemaVersion + `($1, $2, $3, $4, $5)`
	sessionRelease = `SELECT lockstile_session_release_` + schemaVersion + `($1, $2)`
	sessionKeep    = `SELECT lockstile_session_patience_` + schemaVersion + `($1)`
	sessionEnd     = `SELECT lockstile_session_end_` + schemaVersion + `($1, $2)`
	sessionForce   = `SELECT lockstile_session_force_` + schemaVersion + `($1)`

	// sessionLook says whether a connection still waits for a lock, and whether it is
	// there at all.
	sessionLook = `SELECT EXISTS (SELECT FROM lockstile_session_locks_` + schemaVersion + `() l WHERE l.pid = $1 AND NOT l.granted),
  EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = $1 AND coalesce(extract(epoch FROM a.backend_start) * 1000000, $2) = $2)`

	sessionInspect = `
SELECT h.pid IS NOT NULL, coalesce(s.holder, ''), coalesce(s.token, 0), ` + sessionLeft + `,
  (SELECT count(*) FROM lockstile_session_locks_` + schemaVersion + `() w WHERE w.key = n.key AND NOT w.granted)
FROM (SELECT $1::text AS name, pg_catalog.hashtextextended($1::text, 0) AS key) n
LEFT JOIN LATERAL (SELECT l.pid FROM lockstile_session_locks_` + schemaVersion + `() l WHERE l.key = n.key AND l.granted) h ON true
LEFT JOIN lockstile_session s ON s.key = n.key AND s.name = n.name AND s.pid = h.pid
LEFT JOIN pg_stat_activity a ON a.pid = s.pid`

	sessionList = `
SELECT s.name, s.holder, s.token, ` + sessionLeft + `,
  (SELECT count(*) FROM lockstile_session_locks_` + schemaVersion + `() w WHERE w.key = s.key AND NOT w.granted)
FROM lockstile_session s JOIN lockstile_session_locks_` + schemaVersion + `() l ON l.key = s.key AND l.pid = s.pid AND l.granted
LEFT JOIN pg_stat_activity a ON a.pid = s.pid
WHERE starts_with(s.name, $1::text)`

	// sessionLeft is what is left of the TTL since the holder was heard of.
	sessionLeft = `CASE WHEN s.ttl > 0 THEN
  greatest(1, s.ttl - coalesce(extract(epoch FROM clock_timestamp() - a.state_change) * 1000, 0)::bigint) ELSE 0 END`
)
