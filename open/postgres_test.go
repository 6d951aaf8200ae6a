package open_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

func TestPostgresByURL(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	base := "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable"
	refused(t, base, s.Addr(), "no tables for locks", "schema=ensure")
	works(t, mustOpen(t, base+"&schema=ensure"))
	works(t, mustOpen(t, base))
	works(t, mustOpen(t, base+"&schema=ensure&poll=50ms&pool_max_conns=2"))
	works(t, mustOpen(t, strings.Replace(base, "postgres:", "postgresql:", 1)+"&mode=lease"))
	works(t, mustOpen(t, strings.Replace(base, s.Addr(), "127.0.0.1:1,"+s.Addr(), 1)))
	worksInSession(t, mustOpen(t, base+"&mode=session"))
	works(t, mustOpen(t, "postgres:///postgres?sslmode=disable&user=postgres&host=127.0.0.1&port="+s.Addr()[len("127.0.0.1:"):]))
	mustHold(t, mustOpen(t, base), "x")
	if _, lists := mustOpen(t, base).(locker.Lister); !lists {
		t.Error("what is held cannot be listed")
	}
	if _, err := mustOpen(t, base).TryLock(patience(t), "x"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of the same name: %v", err)
	}
	refused(t, strings.Replace(base, "/postgres?", "/nowhere?", 1), s.Addr(), `"nowhere"`, "does not exist")
	s.Kill()
	silent(t, strings.Replace(base, "postgres@", "u:secret@", 1), s.Addr(), "connection refused")
	silent(t, "postgres://u:secret@host.invalid/db", "host.invalid:5432")
}

// A standby takes no locks. Where a URL names several servers, it is passed over.
func TestPostgresAmongStandbysIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a standby")
	}
	t.Parallel()
	primary := testserver.Postgres(t)
	standby := testserver.PostgresStandby(t, primary, primary.Addr(), nil)
	both := "postgres://postgres@" + standby.Addr() + "," + primary.Addr() + "/postgres?sslmode=disable&schema=ensure"
	works(t, mustOpen(t, both))
	worksInSession(t, mustOpen(t, both+"&mode=session"))
	silent(t, both+"&target_session_attrs=any", "read-only") // and in a failover it passes
}

// A socket's directory stands where a host does, in libpq's form.
func TestPostgresBySocket(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	dir, port := url.PathEscape(s.SocketDir()), s.Addr()[len("127.0.0.1:"):]
	works(t, mustOpen(t, "postgres://postgres@"+dir+":"+port+"/postgres?schema=ensure"))
	works(t, mustOpen(t, "postgres://postgres@"+dir+":"+port+",127.0.0.1:1/postgres?sslmode=disable"))
	works(t, mustOpen(t, "postgres:///postgres?user=postgres&host="+dir+"&port="+port))
	silent(t, "postgres://u:secret@"+dir+":1/postgres", s.SocketDir()+"/.s.PGSQL.1")
}

// A space is written as + or %20, in every scheme, and comes through as one.
func TestPostgresParametersKeepSpacesAndPlusSigns(t *testing.T) {
	s := testserver.Postgres(t)
	b := mustOpen(t, s.URL("postgres")+"&schema=ensure&mode=session&application_name=a+b%20c%2Bd&options=-c%20work_mem%3D77kB")
	mustHold(t, b, "x")
	conn, err := pgx.Connect(patience(t), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(patience(t))
	var seen int
	if err := conn.QueryRow(patience(t), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'a b c+d'`).Scan(&seen); err != nil || seen == 0 {
		t.Errorf("%d connections by that name, %v", seen, err)
	}
}

// worksInSession is works where breaking a lock ends the holder's connection,
// which the holder hears of at once.
func worksInSession(t *testing.T, b open.Backend) {
	t.Helper()
	ctx := patience(t)
	lock, err := b.Lock(ctx, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := b.Inspect(ctx, "a/b"); err != nil || !info.Held || info.Token != lock.Token() {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if broken, err := b.Break(ctx, "a/b"); err != nil || !broken {
		t.Errorf("Break: %v, %v", broken, err)
	}
	select {
	case <-lock.Lost():
	case <-ctx.Done():
		t.Error("a broken lock is not lost")
	}
	if err := lock.Unlock(ctx); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock of a broken lock: %v", err)
	}
}

// Advisory locks are told from leases by what they assume.
func TestPostgresParametersReachTheBackend(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	base := "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable&schema=ensure"
	if got := mustOpen(t, base).Guarantees().FreedBy; got != locker.FreedByExpiry {
		t.Errorf("leases end by %v", got)
	}
	if got := mustOpen(t, base+"&mode=session").Guarantees().FreedBy; got != locker.FreedByConnection {
		t.Errorf("mode=session was not heard: locks end by %v", got)
	}
	err := locker.Require(mustOpen(t, base), locker.Correctness)
	if err == nil || !strings.HasPrefix(err.Error(), "locker: tokens of Postgres assume") || !strings.Contains(err.Error(), "no_standby=true") {
		t.Errorf("Require says %v, and not what to put into the URL", err)
	}
	if err := locker.Require(mustOpen(t, base+"&no_standby=true"), locker.Correctness); err != nil {
		t.Error(err)
	}
	sync := mustOpen(t, base+"&sync_standby=true")
	if sync.Guarantees().Tokens.Has(locker.DurableReplica) {
		t.Error("sync_standby was not heard")
	}
	if _, err := sync.TryLock(patience(t), "x"); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("a lock that no standby confirms: %v", err)
	}
}

// A role that may use the tables needs no right to make them.
func TestPostgresUserAndPassword(t *testing.T) {
	t.Parallel()
	const pass = `p@s:s/w?r#d%41,+&= "secret`
	s := testserver.Postgres(t, "password_encryption=scram-sha-256")
	mustOpen(t, s.URL("postgres")+"&schema=ensure")
	ctx := patience(t)
	admin, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(ctx) }()
	for _, sql := range []string{
		`CREATE ROLE me LOGIN PASSWORD '` + pass + `'`,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON lockstile_lease, lockstile_queue, lockstile_mark, lockstile_session, lockstile_known, lockstile_drawn TO me`,
		`GRANT SELECT, USAGE ON SEQUENCE lockstile_token TO me`,
	} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	wantPasswords(t, admin)
	at := "@" + s.Addr() + "/postgres?sslmode=disable"
	works(t, mustOpen(t, "postgres://me:"+escapeLess(pass)+at))
	worksInSession(t, mustOpen(t, "postgres://me:"+escapeLess(pass)+at+"&mode=session"))
	works(t, mustOpen(t, "postgres://me"+at+"&password=p%40s%3As%2Fw%3Fr%23d%2541%2C%2B%26%3D+%22secret"))
	refused(t, "postgres://me:secret"+at, s.Addr(), "password authentication failed")
	refused(t, "postgres://nobody:secret"+at, s.Addr(), "password authentication failed")
	refused(t, "postgres://me"+at+"&password=secret", s.Addr(), "password authentication failed")
	refused(t, "postgres://me:"+escapeLess(pass)+at+"&schema=ensure", s.Addr(), "permission denied")
	preferred := strings.Replace(at, "disable", "prefer", 1) // the server has no TLS, and the client goes on without
	for url, want := range map[string]string{"postgres://me:secret" + preferred: "PGPASSWORD", "postgres://me:" + escapeLess(pass) + strings.Replace(preferred, "/postgres", "/gone", 1): "the database does not exist"} {
		if _, err := open.URL(ctx, url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "tls") {
			t.Errorf("%v", err)
		}
	}
}

// wantPasswords changes who is let in without one: nobody.
func wantPasswords(t *testing.T, admin *pgx.Conn) {
	t.Helper()
	ctx := patience(t)
	var file string
	if err := admin.QueryRow(ctx, `SHOW hba_file`).Scan(&file); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(ctx, `COPY (SELECT 'host all all 127.0.0.1/32 scram-sha-256') TO '`+file+`'`); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(ctx, `SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the new rules", func() bool {
		var rules int
		err := admin.QueryRow(ctx, `SELECT count(*) FROM pg_hba_file_rules WHERE auth_method = 'scram-sha-256' AND error IS NULL`).Scan(&rules)
		return err == nil && rules == 1 && refusesWithoutPassword(ctx, admin.Config().Copy())
	})
}

func refusesWithoutPassword(ctx context.Context, config *pgx.ConnConfig) bool {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return true
	}
	_ = conn.Close(ctx)
	return false
}

func TestPostgresThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	s.Pause()
	defer s.Resume()
	url := "postgres://u:secret@" + s.Addr() + "/db?sslmode=disable&connect_timeout=60"
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("enough")) })
	if _, err := open.URL(ctx, url); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "enough") {
		t.Errorf("a cancelled attempt: %v", err)
	}
	silent(t, url, s.Addr(), "no answer within 5s")
	silent(t, "postgres://u:secret@localhost:1/db", "localhost:1", "connection refused") // with TLS and without
}

func TestPostgresThroughAPoolerTakesLeasesAndRefusesSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: a pooler")
	}
	t.Parallel()
	s := testserver.Postgres(t)
	b := testserver.PgBouncer(t, s, "transaction")
	works(t, mustOpen(t, b.URL("postgres")+"&schema=ensure"))
	works(t, mustOpen(t, b.URL("postgres")))
	sessions := mustOpen(t, b.URL("postgres")+"&mode=session")
	var err error
	waitFor(t, "an answer", func() bool { // on a busy machine the pooler may change the connection before that is noticed
		_, err = sessions.TryLock(patience(t), "x")
		return !errors.Is(err, locker.ErrUnavailable) || strings.Contains(err.Error(), "pooler")
	})
	if err == nil || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("a session lock through a pooler: %v", err)
	}
}

func TestPostgresThatHangsDoesNotHoldUpClose(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	b, err := open.URL(patience(t), s.URL("postgres")+"&schema=ensure")
	if err != nil {
		t.Fatal(err)
	}
	s.Pause()
	defer s.Resume()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.TryLock(ctx, "x"); err == nil {
		t.Error("a database that is stopped has granted a lock")
	}
	start := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took >= 10*time.Second {
		t.Errorf("Close: %v", took)
	}
}

func TestParameterThatNeitherClientNorServerKnowsIsTheURLsFault(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	_, err := open.URL(patience(t), s.URL("postgres")+"&replicas=1")
	if err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), `postgres:// has no parameter "replicas"`) || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	mustOpen(t, s.URL("postgres")+"&application_name=x&schema=ensure")
	refused(t, s.URL("postgres")+"&work_mem=x", "work_mem")
}

// A program that waits for its store opens the URL again and again. If each failed call left its
// pool behind, the server would run out of connections: a pool that nobody closes lives on, and the
// garbage collector does not end it.
func TestPoolOfAURLThatCouldNotBeOpenedIsClosed(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	ctx := patience(t)
	admin, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(ctx) }()
	for range 3 {
		refused(t, s.URL("postgres")+"&application_name=left+behind", "no tables for locks")
	}
	waitFor(t, "the end of all connections of calls that failed", func() bool {
		var open int
		err := admin.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'left%behind'`).Scan(&open)
		return err == nil && open == 0
	})
}
