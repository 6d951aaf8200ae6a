package doctor

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/postgres"
)

// schemaFunctions finds the functions in the text of the schema.
var schemaFunctions = regexp.MustCompile(`(?s)CREATE OR REPLACE FUNCTION (\w+)\(.*?AS \$\$(.*?)\$\$`)

// schema compares what is in the database with what this program expects.
func (p *postgresServer) schema(ctx context.Context) error {
	rows, err := p.pool.Query(ctx, `SELECT proname::text, prosrc FROM pg_proc WHERE proname LIKE 'lockstile\_%' AND pg_function_is_visible(oid)`, unpooled)
	if err != nil {
		return err
	}
	there := map[string]string{}
	var name, body string
	if _, err := pgx.ForEachRow(rows, []any{&name, &body}, func() error {
		there[name] = body
		return nil
	}); err != nil {
		return err
	}
	var other []string
	for _, f := range schemaFunctions.FindAllStringSubmatch(postgres.Schema, -1) {
		if there[f[1]] != f[2] {
			other = append(other, f[1])
		}
	}
	if len(other) > 0 {
		p.danger("its schema is not this version's: "+strings.Join(other, ", "), "locks are refused, or follow the rules of another version", "schema=ensure in the URL, once, as a role that may create tables")
	}
	p.checked("schema")
	return p.tokens(ctx)
}

// tokens come from a sequence that is as the schema makes it: those that a session has
// drawn ahead of time are overtaken, and those that a crash sets back come again.
func (p *postgresServer) tokens(ctx context.Context) error {
	var cache, step int64
	var cycles, permanent bool
	err := p.pool.QueryRow(ctx, `SELECT s.seqcache, s.seqincrement, s.seqcycle, c.relpersistence = 'p' FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
		WHERE s.seqrelid = to_regclass('lockstile_token')`, unpooled).Scan(&cache, &step, &cycles, &permanent)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		p.danger("there is no sequence lockstile_token", "locks are refused", "schema=ensure in the URL, once, as a role that may create tables")
		return nil
	case err != nil:
		return err
	}
	if cache != 1 || step != 1 || cycles || !permanent {
		p.danger("the sequence lockstile_token is not as it was made", "tokens do not increase in the order of grants: a guard lets a former holder in, and keeps the present one out",
			"ALTER SEQUENCE lockstile_token CACHE 1 INCREMENT 1 NO CYCLE; ALTER SEQUENCE lockstile_token SET LOGGED")
	}
	p.checked("sequence of tokens")
	return nil
}

// rights are those that the schema's doc asks for.
func (p *postgresServer) rights(ctx context.Context) error {
	const sql = `SELECT n FROM unnest(ARRAY['lockstile_lease', 'lockstile_queue', 'lockstile_mark', 'lockstile_session', 'lockstile_known']) n, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r
		WHERE to_regclass(n) IS NULL OR NOT has_table_privilege(to_regclass(n), r)
		UNION SELECT s FROM (VALUES ('lockstile_token', 'USAGE'), ('lockstile_token', 'SELECT')) v(s, r)
		WHERE to_regclass(s) IS NULL OR NOT has_sequence_privilege(to_regclass(s), r) ORDER BY 1`
	rows, err := p.pool.Query(ctx, sql, unpooled)
	if err != nil {
		return err
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		p.danger("the role lacks rights on "+strings.Join(missing, ", "), "locks are refused",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON lockstile_lease, lockstile_queue, lockstile_mark, lockstile_session, lockstile_known TO …; "+
				"GRANT SELECT, USAGE ON SEQUENCE lockstile_token TO …")
	}
	p.checked("rights of the role")
	return nil
}

// pooler finds out whether the process that answers is the one that the
// connection was introduced to, and whether a second connection gets the same
// one while the first is open: then it is shared out by transactions.
func (p *postgresServer) pooler(ctx context.Context) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var pid, other uint32
	const sql = `SELECT pg_backend_pid()::bigint`
	if err := conn.QueryRow(ctx, sql, unpooled).Scan(&pid); err != nil {
		return err
	}
	if pid == conn.Conn().PgConn().PID() {
		p.checked("that no pooler is in between, so LISTEN works")
		return nil
	}
	second, err := pgx.ConnectConfig(ctx, p.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	err = second.QueryRow(ctx, sql, unpooled).Scan(&other)
	if cerr := second.Close(ctx); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	mode := "its mode is session, or it is busy"
	if other == pid {
		mode = "its mode is transaction or statement"
	}
	what := "a connection pooler is in between (" + mode + ")"
	if p.session {
		p.danger(what, "locks of a session need a connection of their own: they are refused", "connect to the server directly, or mode=lease")
	} else {
		p.note(what, "waiters cannot be told (LISTEN): they look ten times a second", "connect to the server directly; or leave it so, poll=… in the URL says how often they look")
	}
	p.checked("for a pooler in between")
	return nil
}
