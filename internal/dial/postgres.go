package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/postgres"
)

func postgresSchemes() []Scheme {
	var leases postgres.Locker // what they promise does not depend on the database
	var session postgres.SessionLocker
	return []Scheme{
		{"postgres://[USER:PASS@]HOST[:PORT][,…]/DB", "leases in a PostgreSQL database; postgresql:// too", leases.Guarantees()},
		{"postgres://[USER:PASS@]HOST[:PORT][,…]/DB?mode=session", "advisory locks of PostgreSQL connections", session.Guarantees()},
	}
}

// postgresLocker is one of the package's two Lockers.
type postgresLocker interface {
	Backend
	EnsureSchema(ctx context.Context) error
}

// Postgres is a Locker and the pool that was made for it.
type Postgres struct {
	postgresLocker
	Pool    *pgxpool.Pool
	Options postgres.Options
	Session bool // advisory locks instead of leases
}

// closeTime is how long Close waits. A pool waits for its connections, each of
// which tells a server that hangs, for a quarter of a minute, that it is leaving.
const closeTime = 2 * time.Second

// Close closes the Locker first: its clean-ups need the pool. What a server that
// hangs holds up goes on behind the caller's back.
func (b *Postgres) Close() error {
	done := make(chan error, 1)
	go func() {
		err := b.postgresLocker.Close()
		b.Pool.Close()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(closeTime):
		return nil
	}
}

// postgresOwn are the parameters that are ours and not libpq's.
type postgresOwn struct {
	session, ensure bool
	opts            postgres.Options
}

func openPostgres(ctx context.Context, scheme, rest string) (Backend, error) {
	port := os.Getenv("PGPORT") // as everywhere with PostgreSQL
	if port == "" {
		port = "5432"
	}
	a, err := parseAddress(rest, port)
	if err != nil {
		return nil, err
	}
	own, err := takePostgresOwn(&a)
	if err != nil {
		return nil, err
	}
	again := a
	again.query = maps.Clone(a.query)
	config, err := parsePostgres(a)
	if err == nil {
		renewFiles(config, again)
		err = checkPostgres(config, a.query.Get("connect_timeout"))
	}
	if err != nil {
		return nil, fmt.Errorf("%s:// URL: %w", scheme, err)
	}
	where := postgresPlace(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	b, err := newPostgres(pool, own)
	if err != nil {
		pool.Close()
		return nil, err
	}
	if err := b.ping(ctx, own); err != nil {
		if name := unknownParameter(config, err); name != "" {
			return nil, errors.Join(fmt.Errorf("%s:// has no parameter %q: it is none of ours, of libpq's or of the pool's, and no setting of %s", scheme, name, where), b.Close())
		}
		return b, fmt.Errorf("%s: %w: %w", where, locker.ErrUnavailable, advised(oneLine{err}))
	}
	return b, nil
}

// renewFiles has the files that the URL, or libpq's variables, name read for each connection anew:
// certificates and passwords are renewed on disk while a program runs. Another server or user that
// a service file names since is not followed: locks of one Locker are in one database. Nor does a
// password end with a file that is away for a moment.
func renewFiles(config *pgxpool.Config, a address) {
	place := postgresPlace(config)
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		one := a
		one.query = maps.Clone(a.query)
		now, err := parsePostgres(one)
		if err != nil {
			return err
		}
		if now.ConnConfig.User != c.User || postgresPlace(now) != place {
			return nil
		}
		c.Password = cmp.Or(now.ConnConfig.Password, c.Password)
		c.TLSConfig, c.Fallbacks = now.ConnConfig.TLSConfig, now.ConnConfig.Fallbacks
		return nil
	}
}

// oneLine is an error of the client's, which writes a line for each address that it has
// tried, and the same once more without TLS.
type oneLine struct{ error }

func (e oneLine) Error() string {
	first, rest, several := strings.Cut(e.error.Error(), "\n\t")
	if !several {
		return first
	}
	tries := slices.Compact(strings.Split(rest, "\n\t"))
	if said := slices.DeleteFunc(slices.Clone(tries), func(try string) bool { return strings.HasSuffix(try, noTLS) }); len(said) > 0 {
		tries = said // what the server said after that, without TLS, is why
	}
	return first + " " + strings.Join(tries, "; ")
}

// noTLS is what the client says where TLS was preferred and not demanded, before it goes on without.
const noTLS = "tls error: server refused TLS connection"

func (e oneLine) Unwrap() error { return e.error }

// advised says what to do about a server that lets nobody in.
func advised(err error) error {
	var reply *pgconn.PgError
	switch {
	case !errors.As(err, &reply):
		return err
	case strings.HasPrefix(reply.Code, "28"):
		return fmt.Errorf("check the user name and the password (USER:PASS@ in the URL, PGPASSWORD, or a password file): %w", err)
	case reply.Code == "3D000":
		return fmt.Errorf("the database does not exist: %w", err)
	}
	return err
}

// unknownParameter returns the parameter that the server does not know: the
// client passes on to it, as a setting, what it does not know itself.
func unknownParameter(config *pgxpool.Config, err error) string {
	const undefinedObject = "42704"
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || refusal.Code != undefinedObject {
		return ""
	}
	for name := range config.ConnConfig.RuntimeParams {
		if strings.Contains(refusal.Message, `"`+name+`"`) {
			return name
		}
	}
	return ""
}

// takePostgresOwn takes our own parameters off before the client looks at the
// rest.
func takePostgresOwn(a *address) (own postgresOwn, err error) {
	switch mode := a.take("mode"); mode {
	case "", "lease":
	case "session":
		own.session = true
	default:
		return own, fmt.Errorf("mode=%q is neither lease nor session", mode)
	}
	switch schema := a.take("schema"); schema {
	case "":
	case "ensure":
		own.ensure = true
	default:
		return own, fmt.Errorf("schema=%q is not ensure: to choose a schema of the database, write options=-csearch_path%%3DNAME", schema)
	}
	err = cmp.Or(a.duration("poll", &own.opts.Poll), a.boolean("sync_standby", &own.opts.SyncStandby), a.boolean("no_standby", &own.opts.NoStandby))
	return own, err
}

// checkPostgres refuses numbers at which the client panics in a goroutine of its
// own, runs out of memory or wraps.
func checkPostgres(config *pgxpool.Config, connectTimeout string) error {
	if config.HealthCheckPeriod <= 0 {
		return fmt.Errorf("pool_health_check_period is %v, and has to be more than 0", config.HealthCheckPeriod)
	}
	for _, c := range []struct {
		name string
		n    int
	}{
		{"pool_max_conns", int(config.MaxConns)},
		{"pool_min_conns", int(config.MinConns)},
		{"pool_min_idle_conns", int(config.MinIdleConns)},
		{"statement_cache_capacity", config.ConnConfig.StatementCacheCapacity},
		{"description_cache_capacity", config.ConnConfig.DescriptionCacheCapacity},
	} {
		if c.n < 0 || c.n > mostConns {
			return fmt.Errorf("%s is %d, and has to be from 0 to %d", c.name, c.n, mostConns)
		}
	}
	seconds := numberFrom(0, int(longest/time.Second))
	if connectTimeout != "" && !seconds.ok(connectTimeout) {
		return fmt.Errorf("connect_timeout is not %s, in seconds", seconds.is)
	}
	return nil
}

// parsePostgres leaves to the client what the URL means, but not the password: it
// quotes what it does not understand. The user name it needs, to find a password
// in a file.
func parsePostgres(a address) (*pgxpool.Config, error) {
	if !a.anyHost && a.query.Has("host") {
		return nil, errors.New("the parameter host would replace the hosts before the path: name them once")
	}
	if strings.Contains(a.user, "\x00") { // the client refuses it, too, and quotes it
		return nil, errors.New("the user has a NUL character (%00), which PostgreSQL does not take")
	}
	pass := a.take("password")
	if pass == "" {
		pass = a.pass
	}
	if a.query.Get("connect_timeout") == "" && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		a.query.Set("connect_timeout", strconv.Itoa(int(replyTime/time.Second))) // its own is minutes, for each host
	}
	if severalHosts(a) && a.query.Get("target_session_attrs") == "" && os.Getenv("PGTARGETSESSIONATTRS") == "" {
		a.query.Set("target_session_attrs", "read-write") // a standby takes no locks
	}
	// Not by net/url: it would escape the %2F of a socket's directory once more,
	// and it writes a space as +, which stays one to libpq and the client.
	text := "postgres://"
	if a.user != "" {
		text += url.User(a.user).String() + "@"
	}
	if !a.anyHost {
		text += strings.Join(a.hosts, ",")
	}
	text += "/" + url.PathEscape(a.path) + "?" + strings.ReplaceAll(a.query.Encode(), "+", "%20")
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		text := err.Error()
		if _, reason, quoted := strings.Cut(text, "`: "); quoted {
			text = reason
		}
		if secret := a.query.Get("sslpassword"); secret != "" { // which the client needs, to read the key
			text = strings.ReplaceAll(text, secret, "…")
		}
		return nil, errors.New(text)
	}
	if pass != "" {
		config.ConnConfig.Password = pass
	}
	return config, nil
}

func severalHosts(a address) bool {
	return !a.anyHost && len(a.hosts) > 1 || strings.Contains(a.query.Get("host"), ",")
}

// postgresPlace names the servers and the database, as the client has understood
// them.
func postgresPlace(config *pgxpool.Config) string {
	c := config.ConnConfig
	place := fmt.Sprintf("postgres database %q at %s", c.Database, postgresHost(c.Host, c.Port))
	seen := map[string]bool{postgresHost(c.Host, c.Port): true}
	for _, f := range c.Fallbacks { // the same host with and without TLS is two
		if host := postgresHost(f.Host, f.Port); !seen[host] {
			seen[host] = true
			place += "," + host
		}
	}
	return place
}

func postgresHost(host string, port uint16) string {
	_, addr := pgconn.NetworkAddress(host, port)
	return addr
}

func newPostgres(pool *pgxpool.Pool, own postgresOwn) (*Postgres, error) {
	var l postgresLocker
	var err error
	if own.session {
		l, err = postgres.NewSession(pool, own.opts)
	} else {
		l, err = postgres.New(pool, own.opts)
	}
	return &Postgres{l, pool, own.opts, own.session}, err
}

// ping asks for the locks' tables, which it makes if it is to. The question is
// sent unprepared, for a pooler in between.
func (b *Postgres) ping(ctx context.Context, own postgresOwn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %v", answerTime))
	defer cancel()
	err := b.prepare(ctx, own)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (b *Postgres) prepare(ctx context.Context, own postgresOwn) error {
	if own.ensure {
		return b.EnsureSchema(ctx)
	}
	var there bool
	err := b.Pool.QueryRow(ctx, `SELECT pg_catalog.to_regclass('lockstile_lease') IS NOT NULL`, pgx.QueryExecModeExec).Scan(&there)
	if err == nil && !there {
		err = driver.Refused(errors.New("it has no tables for locks: open it once with schema=ensure in the URL, as a role that may create tables, " +
			"or apply the Schema of package postgres; or check the search path"))
	}
	return err
}
