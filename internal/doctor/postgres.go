package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker/internal/dial"
	"github.com/lockstile/locker/postgres"
)

// ask sends a statement that returns one row. A stranger's operators and functions are not found
// in it: all is sent as one transaction, the first statement of which sets its search path, in
// one message, so that a pooler in between does not mind. Parameters have a type in the statement.
func ask(ctx context.Context, conn *pgxpool.Conn, sql string, params []string, dest ...any) error {
	values := make([][]byte, len(params))
	for i, text := range params {
		values[i] = []byte(text)
	}
	var batch pgconn.Batch
	batch.ExecParams(`SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)`, nil, nil, nil, nil)
	batch.ExecParams(sql, values, nil, nil, nil)
	results := conn.Conn().PgConn().ExecBatch(ctx, &batch)
	var err error
	if results.NextResult() { // of set_config
		_, err = results.ResultReader().Close()
	}
	if results.NextResult() {
		rows := pgx.RowsFromResultReader(conn.Conn().TypeMap(), results.ResultReader())
		rows.Next()
		err = rows.Scan(dest...)
		rows.Close()
	}
	return cmp.Or(results.Close(), err)
}

// lent is ask over some connection of the pool, which may have only one.
func lent(ctx context.Context, pool *pgxpool.Pool, sql string, params []string, dest ...any) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return ask(ctx, conn, sql, params, dest...) })
}

// postgres looks at the database in which package postgres keeps locks: leases,
// or advisory locks of a session.
func (r *Report) postgres(ctx context.Context, b *dial.Postgres) error {
	a := r.at(fmt.Sprintf("database %q", b.Pool.Config().ConnConfig.Database))
	conn, err := b.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	var pid uint32
	var version, isolation, fsync, pages string
	var standby, readOnly bool
	var s standbys
	err = ask(ctx, conn, `SELECT pg_backend_pid()::bigint, current_setting('server_version'), pg_is_in_recovery(), current_setting('transaction_read_only')::boolean,
		current_setting('default_transaction_isolation'), current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)`, nil,
		&pid, &version, &standby, &readOnly, &isolation, &fsync, &pages, &s.commit, &s.names, &s.have)
	pooled := pid != conn.Conn().PgConn().PID() // the server process is not the one that the connection was introduced to
	conn.Release()                              // it may be the pool's only one
	if err != nil {
		return err
	}
	switch {
	case standby:
		a.found("postgres-standby")
	case readOnly:
		a.found("postgres-read-only")
	}
	if isolation != "read committed" {
		a.found("postgres-isolation", isolation)
	}
	if fsync == "off" {
		a.found("postgres-crash", "fsync")
	}
	if pages == "off" {
		a.found("postgres-crash", "full_page_writes")
	}
	if b.Session && pooled {
		a.found("postgres-pooler")
	}
	a.checked("version %s, role, isolation level, fsync, full_page_writes", version)
	a.standbys(s, b.Session, b.Options)
	if err := a.load(ctx, b); err != nil {
		return err
	}
	return a.schema(ctx, b)
}

// oldSnapshot is after how many transactions a snapshot counts as old.
const oldSnapshot = 100_000

// load: what others do in the server that makes locks dear, or impossible. The server
// keeps the dead rows that the oldest snapshot could see, and each lock leaves some. While
// a transaction goes on, all snapshots are as old as that: what began first keeps them.
func (a at) load(ctx context.Context, b *dial.Postgres) error {
	var oldest int64
	var who string
	var locks, room int64
	var all bool // the role may see what others do
	if err := lent(ctx, b.Pool, `SELECT coalesce(o.old, 0), coalesce(o.who, ''), (SELECT count(*) FROM pg_locks l WHERE NOT l.fastpath),
		current_setting('max_locks_per_transaction')::bigint * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
		pg_has_role('pg_read_all_stats', 'USAGE')
		FROM (SELECT) one LEFT JOIN (SELECT age(xmin)::bigint AS old, who FROM (
			SELECT x AS xmin, 'the process ' || pid AS who, xact_start AS since, true AS maybe
				FROM pg_stat_activity, unnest(ARRAY[backend_xmin, backend_xid]) x WHERE datname = current_database()
			UNION ALL SELECT backend_xmin, 'the standby ' || application_name, NULL, false FROM pg_stat_replication
			UNION ALL SELECT xmin, 'the replication slot ' || slot_name, NULL, false FROM pg_replication_slots
			UNION ALL SELECT transaction, 'the prepared transaction ' || gid, NULL, false FROM pg_prepared_xacts WHERE database = current_database()) s
			WHERE xmin IS NOT NULL ORDER BY age(xmin) DESC, maybe, since LIMIT 1) o ON true`, nil, &oldest, &who, &locks, &room, &all); err != nil {
		return err
	}
	if !all {
		a.found("unseen", "the snapshots of other roles", "the role is no member of pg_read_all_stats")
	}
	if oldest > oldSnapshot {
		a.found("postgres-old-snapshot", who, oldest)
	}
	if locks > room/2 {
		a.found("postgres-lock-table", locks, room)
	}
	a.checked("snapshots (the oldest is %d transactions old), the lock table (%d of %d places are taken)", oldest, locks, room)
	return nil
}

// standbys is what the server says of those that follow it.
type standbys struct {
	have          int
	names, commit string // synchronous_standby_names, synchronous_commit
}

// standbys: a failover to one that lags forgets leases and tokens.
func (a at) standbys(s standbys, session bool, opts postgres.Options) {
	switch {
	case s.names == "" && opts.SyncStandby:
		a.found("postgres-unsynced")
	case opts.NoStandby && s.have > 0:
		a.found("postgres-promoted", s.have)
	case s.names == "" && s.have > 0:
		a.found("postgres-failover", s.have)
	case s.names != "" && !opts.SyncStandby:
		a.found("postgres-undeclared", s.names)
	case s.names != "" && s.have == 0:
		a.found("postgres-waits", s.names)
	}
	if s.names != "" && s.commit == "remote_write" {
		a.found("postgres-remote-write")
	}
	if session && (s.have > 0 || s.names != "") {
		a.found("postgres-session")
	}
	a.checked("standbys (%d, synchronous_standby_names %q)", s.have, s.names)
}

// schema asks for a lock as this program does, and so for the functions of its version
// of the schema. Tokens come from a sequence that is as the schema makes it: those that a
// session has drawn ahead of time are overtaken, and those that a crash sets back come
// again.
func (a at) schema(ctx context.Context, b *dial.Postgres) error {
	var reply *pgconn.PgError
	_, err := b.Inspect(ctx, rand.Text())
	switch {
	case errors.As(err, &reply) && reply.Code == "42501": // what the role lacks is looked for below
	case errors.As(err, &reply):
		a.found("postgres-schema", err)
		return nil
	case err != nil:
		return err
	}
	var token, guard uint32
	var path string
	if err := b.Pool.QueryRow(ctx, `SELECT coalesce(pg_catalog.to_regclass('lockstile_token')::pg_catalog.oid, 0::pg_catalog.oid),
		coalesce(pg_catalog.to_regclass('lockstile_fence')::pg_catalog.oid, 0::pg_catalog.oid), pg_catalog.current_schemas(false)::pg_catalog.text`,
		pgx.QueryExecModeExec).Scan(&token, &guard, &path); err != nil {
		return err
	}
	var sane bool
	var missing, others []string
	var place, fence string
	if err := lent(ctx, b.Pool, schemaSound, []string{fmt.Sprint(token), path, fmt.Sprint(guard)}, &sane, &missing, &others, &place, &fence); err != nil {
		return err
	}
	if !sane {
		a.found("postgres-sequence")
	}
	if len(missing) > 0 {
		a.found("postgres-rights", strings.Join(missing, ", "))
	}
	if len(others) > 0 {
		a.found("postgres-strangers", strings.Join(others, ", "))
	}
	if len(missing) == 0 {
		if err := a.tokens(ctx, b, fmt.Sprint(token), place, fence); err != nil {
			return err
		}
	}
	a.checked("schema, sequence of tokens, rights of the role, who else may make something where it is found")
	return nil
}

// tokens compares the sequence with the numbers that are known to have been drawn from it, and with
// the greatest token that a guard has seen. An upgrade by logical replication copies tables and no
// sequences. The names are as the server has quoted them.
func (a at) tokens(ctx context.Context, b *dial.Postgres, token, place, fence string) error {
	if fence == "" {
		fence = "(SELECT 0 AS token)"
	}
	var last, drawn int64
	var seen string
	var ahead bool
	if err := lent(ctx, b.Pool, fmt.Sprintf(`SELECT s.at, s.drawn, s.seen::text, s.seen >= (s.at + 1) * 1024::numeric FROM (
		SELECT coalesce(pg_sequence_last_value($1::oid), 0) AS at, coalesce((SELECT max(f.token) FROM %[2]s f), 0)::numeric AS seen,
			coalesce(greatest((SELECT max(d.upto) FROM %[1]s.lockstile_drawn d), (SELECT max(l.token) / 1024 FROM %[1]s.lockstile_lease l)), 0) AS drawn) s`,
		place, fence), []string{token}, &last, &drawn, &seen, &ahead); err != nil {
		return err
	}
	switch {
	case last < drawn:
		a.found("postgres-sequence-back", last, drawn)
	case ahead:
		a.found("postgres-guard-ahead", seen)
	}
	return nil
}

// schemaSound says whether the sequence is as it was made, on what the role lacks rights, and who
// else could put something in the place of what the locks are made of: whoever may create in their
// schema, or in one that the search path has before it, or has made one of our tables or functions.
// Whoever owns the schema or the sequence, and a superuser, could do so anyway. It also names the locks'
// schema, and the guard's table if the role may read it.
const schemaSound = `
WITH ours AS (SELECT c.oid, c.relnamespace AS place, c.relowner AS owner FROM pg_class c WHERE c.oid = $1::oid),
trusted AS (SELECT r.oid FROM pg_roles r WHERE r.rolsuper OR r.rolname = current_user
  UNION SELECT o.owner FROM ours o UNION SELECT n.nspowner FROM ours o JOIN pg_namespace n ON n.oid = o.place)
SELECT EXISTS (SELECT FROM ours o JOIN pg_sequence s ON s.seqrelid = o.oid JOIN pg_class c ON c.oid = o.oid
    WHERE s.seqcache = 1 AND s.seqincrement = 1 AND NOT s.seqcycle AND c.relpersistence = 'p'),
  ARRAY(SELECT n FROM unnest(ARRAY['lockstile_lease', 'lockstile_queue', 'lockstile_mark', 'lockstile_session', 'lockstile_known', 'lockstile_drawn']) n,
      unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r
      WHERE has_table_privilege((SELECT c.oid FROM pg_class c JOIN ours o ON o.place = c.relnamespace WHERE c.relname = n), r) IS NOT TRUE
    UNION SELECT 'lockstile_token' FROM unnest(ARRAY['USAGE', 'SELECT']) r WHERE has_sequence_privilege($1::oid, r) IS NOT TRUE ORDER BY 1),
  ARRAY(SELECT CASE g.grantee WHEN 0 THEN 'everybody (PUBLIC)' ELSE quote_ident(pg_get_userbyid(g.grantee)) END || ' in the schema ' || quote_ident(n.nspname)
      FROM unnest($2::text[]) WITH ORDINALITY p(name, place) JOIN pg_namespace n ON n.nspname = p.name,
        aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) g
      WHERE g.privilege_type = 'CREATE' AND g.grantee NOT IN (SELECT t.oid FROM trusted t)
        AND p.place <= (SELECT min(q.place) FROM unnest($2::text[]) WITH ORDINALITY q(name, place)
          JOIN pg_namespace m ON m.nspname = q.name JOIN ours o ON o.place = m.oid)
    UNION SELECT quote_ident(pg_get_userbyid(f.owner)) || ', who owns ' || f.name
      FROM (SELECT c.relname::text, c.relowner, c.relnamespace FROM pg_class c WHERE c.relkind <> 'i'
        UNION SELECT p.oid::regprocedure::text, p.proowner, p.pronamespace FROM pg_proc p) f(name, owner, place) JOIN ours o ON o.place = f.place
      WHERE f.name LIKE '%lockstile\_%' AND f.owner NOT IN (SELECT t.oid FROM trusted t) ORDER BY 1),
  coalesce((SELECT quote_ident(n.nspname) FROM ours o JOIN pg_namespace n ON n.oid = o.place), ''),
  CASE WHEN has_table_privilege($3::oid, 'SELECT') THEN $3::oid::regclass::text ELSE '' END`
