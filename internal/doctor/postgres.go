package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker/postgres"
)

// unpooled sends a statement so that a pooler in between does not mind.
const unpooled = pgx.QueryExecModeExec

// Postgres looks at the database in which package postgres keeps locks: leases,
// or advisory locks of a session.
func Postgres(ctx context.Context, r *Report, pool *pgxpool.Pool, session bool, opts postgres.Options) error {
	config := pool.Config().ConnConfig
	p := &postgresServer{at: r.at(fmt.Sprintf("database %q", config.Database)), pool: pool, session: session, opts: opts}
	if err := p.ask(ctx); err != nil {
		return err
	}
	p.standing()
	p.settings()
	p.durability()
	p.connections()
	for _, check := range []func(context.Context) error{p.standbys, p.pooler, p.schema, p.rights} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// postgresServer is a database, with what the server says of itself.
type postgresServer struct {
	at
	pool    *pgxpool.Pool
	session bool // advisory locks
	opts    postgres.Options
	set     map[string]string
	standby bool
}

// ask reads the settings that count in our own sessions.
func (p *postgresServer) ask(ctx context.Context) error {
	const sql = `SELECT name, setting FROM pg_settings WHERE name IN ('server_version', 'server_version_num', 'server_encoding',
		'fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'idle_session_timeout',
		'tcp_keepalives_idle', 'default_transaction_isolation', 'default_transaction_read_only')`
	rows, err := p.pool.Query(ctx, sql, unpooled)
	if err != nil {
		return err
	}
	p.set = map[string]string{}
	var name, setting string
	if _, err := pgx.ForEachRow(rows, []any{&name, &setting}, func() error {
		p.set[name] = setting
		return nil
	}); err != nil {
		return err
	}
	var now time.Time
	sent := time.Now()
	if err := p.pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), clock_timestamp()`, unpooled).Scan(&p.standby, &now); err != nil {
		return err
	}
	took := time.Since(sent)
	if ahead := now.Sub(sent.Add(took / 2)); ahead.Abs() > clockOff+took/2 {
		p.note(fmt.Sprintf("its clock is %v %s this machine's", ahead.Abs().Round(time.Millisecond), direction(ahead)),
			"leases end by the database's clock alone; a standby that takes over must have a clock that agrees", "keep the clocks of all servers by NTP")
	}
	p.checked("clock")
	return nil
}

func (p *postgresServer) number(setting string) int {
	n, err := strconv.Atoi(p.set[setting])
	if err != nil {
		return 0 // this version does not have it
	}
	return n
}

// standing is what keeps locks from working at all.
func (p *postgresServer) standing() {
	if p.number("server_version_num") < 150000 {
		p.danger("its version is "+p.set["server_version"], "locks need PostgreSQL 15: they are refused", "PostgreSQL 15 or later")
	}
	p.checked("version %s", p.set["server_version"])
	switch {
	case p.standby:
		p.danger("it is a standby (in recovery)", "it takes no writes, so no locks", "connect to the primary, or add target_session_attrs=read-write to the URL")
	case p.set["default_transaction_read_only"] == "on":
		p.danger("transactions are read-only (default_transaction_read_only on)", "locks are refused", "ALTER ROLE … SET default_transaction_read_only = off")
	}
	p.checked("role (primary: %t)", !p.standby)
}

func (p *postgresServer) settings() {
	if level := p.set["default_transaction_isolation"]; level != "read committed" {
		p.danger(fmt.Sprintf("the isolation level is %q (default_transaction_isolation)", level), "locks are refused", "ALTER ROLE … SET default_transaction_isolation = 'read committed'")
	}
	if encoding := p.set["server_encoding"]; encoding != "UTF8" {
		p.danger("the encoding of the database is "+encoding, "names of locks need UTF8: the schema is refused", "a database with ENCODING 'UTF8'")
	}
	p.checked("isolation level, encoding")
}

// durability is what a crash leaves.
func (p *postgresServer) durability() {
	for _, name := range []string{"fsync", "full_page_writes"} {
		if p.set[name] == "off" {
			p.danger(name+" is off", "a crash of the machine can bring old leases and old tokens back: a second holder gets a held lock, and its token may be the same",
				name+" = on")
		}
	}
	switch mode := p.set["synchronous_commit"]; mode {
	case "off", "local":
		p.note("synchronous_commit is "+mode, "grants and tokens are made durable all the same; what you write under a lock is not, nor is a guard's memory of tokens: a crash takes back what was confirmed",
			"synchronous_commit = on, at least for what is written under a lock")
	case "remote_write":
		if p.set["synchronous_standby_names"] != "" {
			p.note("synchronous_commit is remote_write", "a standby has received what it confirms, and has not synced it: a crash of its machine, then a failover to it, forgets locks",
				"synchronous_commit = on")
		}
	}
	p.checked("fsync, full_page_writes, synchronous_commit (%s)", p.set["synchronous_commit"])
}

const (
	// listening is what an idle session must last, for the connection that
	// waits for notifications speaks every 5 s.
	listening = 10 * time.Second

	// buried is how long the end of a client's machine should stay unnoticed.
	buried = 5 * time.Minute
)

func (p *postgresServer) connections() {
	idle := time.Duration(p.number("idle_session_timeout")) * time.Millisecond
	if idle > 0 && idle < listening {
		p.note(fmt.Sprintf("it ends sessions that are idle for %v (idle_session_timeout)", idle),
			"the connection that waiters are told over breaks again and again; what they miss costs the rest of a lease", "idle_session_timeout = 0, or 10 s and more, for this role")
	}
	if alive := time.Duration(p.number("tcp_keepalives_idle")) * time.Second; alive > buried || alive == 0 && p.overTCP() {
		p.note(fmt.Sprintf("it asks a silent connection for a sign of life after %v (tcp_keepalives_idle)", alive),
			"a client whose machine died keeps its transaction, and with it the locks of LockTx, for so long; leases end by themselves, and locks of sessions have a timeout of their own",
			"tcp_keepalives_idle = 60, tcp_keepalives_interval = 10, tcp_keepalives_count = 3")
	}
	p.checked("idle_session_timeout, tcp_keepalives_idle")
}

// overTCP: without TCP there is no such setting, and 0 means nothing.
func (p *postgresServer) overTCP() bool {
	host := p.pool.Config().ConnConfig.Host
	return host != "" && host[0] != '/'
}

// standbys: a failover to one that lags forgets leases and tokens.
func (p *postgresServer) standbys(ctx context.Context) error {
	var have int
	if err := p.pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication`, unpooled).Scan(&have); err != nil {
		return err
	}
	names := p.set["synchronous_standby_names"]
	switch {
	case names == "" && p.opts.SyncStandby:
		p.danger("sync_standby is set, and the server waits for no standby (synchronous_standby_names is empty)", "locks are refused", "synchronous_standby_names = 'ANY 1 (…)'")
	case p.opts.NoStandby && have > 0:
		p.danger(fmt.Sprintf("no_standby is set, and it has %d standbys", have),
			"if one of them is promoted, leases are forgotten and tokens go back, though the opposite is declared", "no_standby=false, or see to it that none is ever promoted")
	case names == "" && have > 0:
		p.danger(fmt.Sprintf("it has %d standbys and waits for none (synchronous_standby_names is empty)", have),
			"a failover forgets leases that are held and sends tokens back: a second holder gets in, and a guard may not notice",
			"synchronous_standby_names = 'ANY 1 (…)', promote only one that is synchronous, and say sync_standby=true in the URL")
	case names != "" && !p.opts.SyncStandby:
		p.note("it waits for synchronous standbys ("+names+"), and sync_standby is not set",
			"the locks do not know that they survive a failover, and would not notice if that setting went away", "sync_standby=true in the URL, if only a synchronous standby is ever promoted")
	case names != "" && have == 0:
		p.danger("it waits for synchronous standbys ("+names+"), and none is connected", "every lock waits until one is back", "bring a standby back")
	}
	if p.session && (have > 0 || names != "") {
		p.note("locks are those of a session, and there are standbys", "the successor of this server knows nothing of advisory locks: a second holder can get in before the first has heard of the failover", "mode=lease, or LockTx")
	}
	p.checked("%d standbys, synchronous: %q", have, names)
	return nil
}
