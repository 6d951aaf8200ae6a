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
	var standby bool
	var s standbys
	err = conn.QueryRow(ctx, `SELECT pg_backend_pid()::bigint, current_setting('server_version'), pg_is_in_recovery(),
		current_setting('default_transaction_isolation'), current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)`, unpooled).
		Scan(&pid, &version, &standby, &isolation, &fsync, &pages, &s.commit, &s.names, &s.have)
	pooled := pid != conn.Conn().PgConn().PID() // the server process is not the one that the connection was introduced to
	conn.Release()                              // it may be the pool's only one
	if err != nil {
		return err
	}
	if standby {
		a.found("postgres-standby")
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
	a.checked("version %s, role (primary: %t), isolation level, fsync, full_page_writes", version, !standby)
	a.standbys(s, b.Session, b.Options)
	return a.schema(ctx, b)
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
	a.checked("%d standbys, synchronous: %q", s.have, s.names)
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
