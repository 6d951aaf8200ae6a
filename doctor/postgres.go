package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstile/locker/internal/dial"
	"github.com/lockstile/locker/postgres"
)

// unpooled sends a statement so that a pooler in between does not mind.
const unpooled = pgx.QueryExecModeExec

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
	err = conn.QueryRow(ctx, `SELECT pg_backend_pid()::bigint, current_setting('server_version'), pg_is_in_recovery(), current_setting('transaction_read_only')::boolean,
		current_setting('default_transaction_isolation'), current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)`, unpooled).
		Scan(&pid, &version, &standby, &readOnly, &isolation, &fsync, &pages, &s.commit, &s.names, &s.have)
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
	if err := b.Pool.QueryRow(ctx, `SELECT coalesce(o.old, 0), coalesce(o.who, ''), (SELECT count(*) FROM pg_locks l WHERE NOT l.fastpath),
		current_setting('max_locks_per_transaction')::bigint * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
		pg_has_role('pg_read_all_stats', 'USAGE')
		FROM (SELECT) one LEFT JOIN (SELECT age(xmin)::bigint AS old, who FROM (
			SELECT x AS xmin, 'the process ' || pid AS who, xact_start AS since, true AS maybe
				FROM pg_stat_activity, unnest(ARRAY[backend_xmin, backend_xid]) x WHERE datname = current_database()
			UNION ALL SELECT backend_xmin, 'the standby ' || application_name, NULL, false FROM pg_stat_replication
			UNION ALL SELECT xmin, 'the replication slot ' || slot_name, NULL, false FROM pg_replication_slots
			UNION ALL SELECT transaction, 'the prepared transaction ' || gid, NULL, false FROM pg_prepared_xacts WHERE database = current_database()) s
			WHERE xmin IS NOT NULL ORDER BY age(xmin) DESC, maybe, since LIMIT 1) o ON true`, unpooled).Scan(&oldest, &who, &locks, &room, &all); err != nil {
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
	case errors.As(err, &reply):
		a.found("postgres-schema", err)
		return nil
	case err != nil:
		return err
	}
	var sane bool
	var missing []string
	if err := b.Pool.QueryRow(ctx, `SELECT
		EXISTS (SELECT FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid WHERE s.seqrelid = to_regclass('lockstile_token')
			AND s.seqcache = 1 AND s.seqincrement = 1 AND NOT s.seqcycle AND c.relpersistence = 'p'),
		ARRAY(SELECT n FROM unnest(ARRAY['lockstile_lease', 'lockstile_queue', 'lockstile_mark', 'lockstile_session', 'lockstile_known']) n,
				unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r WHERE has_table_privilege(to_regclass(n), r) IS NOT TRUE
			UNION SELECT 'lockstile_token' FROM unnest(ARRAY['USAGE', 'SELECT']) r
				WHERE NOT has_sequence_privilege(to_regclass('lockstile_token'), r) ORDER BY 1)`, unpooled).Scan(&sane, &missing); err != nil {
		return err
	}
	if !sane {
		a.found("postgres-sequence")
	}
	if len(missing) > 0 {
		a.found("postgres-rights", strings.Join(missing, ", "))
	}
	a.checked("schema, sequence of tokens, rights of the role")
	return nil
}
