package testbed

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
	"github.com/lockstile/locker/proof/matrix"
)

func postgresSubjects() []matrix.Subject {
	return []matrix.Subject{
		{
			Name: "postgres", About: "lease rows; one server, with an asynchronous standby that may take over",
			Guarantees: new(postgres.Locker).Guarantees(), Start: onePostgres,
		},
		{
			Name: "postgres session", About: "advisory locks; the same",
			Guarantees: new(postgres.SessionLocker).Guarantees(), Start: sessionsOnPostgres,
		},
		postgresSyncSubject(),
		{
			Name: "postgres tx", About: "LockTx: the lock is taken in the transaction that does the writes, and what counts is what it commits",
			Guarantees: new(inTransactions).Guarantees(), Start: postgresInside("&mode=tx"),
		},
	}
}

func onePostgres(lab *matrix.Lab) (*matrix.System, error) {
	sys, _, err := startPostgres(lab, "")
	return sys, err
}

// sessionsOnPostgres has no successor that could end a lock by its clock: none has heard
// of any.
func sessionsOnPostgres(lab *matrix.Lab) (*matrix.System, error) {
	sys, clients, err := startPostgres(lab, "&mode=session")
	sys.ClockAhead, sys.Stranger = nil, clients.stranger
	return sys, err
}

func startPostgres(lab *matrix.Lab, query string) (*matrix.System, *movable, error) {
	clocks := newClocks(lab, 2)
	clock, ahead := clocks[0], clocks[1]
	primary := testserver.PostgresWithEnv(lab, clock.env())
	var standby *testserver.PostgresServer
	clients := &movable{lab: lab, current: primary.Addr(), query: query}
	sys, err := clients.system(primary, clock, takeOver{
		// The standby has everything up to now, and no more.
		lag: func() {
			var stream *netproxy.Proxy
			standby, stream = standbyOf(lab, primary, clock)
			stream.Cut()
			must(lab, "tokens", drawLogged(primary.URL("postgres")))
		},
		ahead: ahead.hourAhead(lab, func() func() (time.Time, error) {
			standby, _ = standbyOf(lab, primary, ahead)
			return timeOfPostgres(standby)
		}),
		promote: func() *testserver.PostgresServer {
			standby.Promote()
			return standby
		},
	})
	return sys, clients, err
}

// standbyOf starts a standby, and a network between it and its primary.
func standbyOf(lab *matrix.Lab, primary *testserver.PostgresServer, clock *clock) (*testserver.PostgresServer, *netproxy.Proxy) {
	stream, err := netproxy.Listen(primary.Addr())
	must(lab, "standby", err)
	lab.Cleanup(stream.Close)
	return testserver.PostgresStandby(lab, primary, stream.Addr(), clock.env()), stream
}

// takeOver is how a standby falls behind and then becomes the primary.
type takeOver struct {
	lag     func()
	ahead   func() error // nil if no clock can be stepped
	promote func() *testserver.PostgresServer
}

// system is a primary with the tables of the locks, and a standby that may take over.
func (m *movable) system(primary *testserver.PostgresServer, clock *clock, standby takeOver) (*matrix.System, error) {
	url := primary.URL("postgres")
	return &matrix.System{
		Client:       m.client,
		CrashKeeping: try(m.lab, primary.Kill, primary.Start),
		Pause:        try(m.lab, primary.Pause),
		Resume:       try(m.lab, primary.Resume),
		StepClock:    clock.wakingSessions(primary),
		Lag:          try(m.lab, standby.lag),
		ClockAhead:   standby.ahead,
		CatchUp:      func() error { return caughtUp(url, 1) },
		Stored:       func() (matrix.Stored, error) { return storedOnPostgres(testserver.PostgresURL(m.current, "postgres")) },
		FailOver:     try(m.lab, primary.Kill, func() { m.moveTo(standby.promote().Addr()) }),
	}, ensureSchema(url)
}

// PostgresWritingAside is "postgres tx" with holders that write outside of their
// transactions, so its declaration is false.
func PostgresWritingAside() matrix.Subject {
	return matrix.Subject{
		Name: "postgres tx, writing aside", About: "wrong on purpose",
		Guarantees: new(inTransactions).Guarantees(), Start: postgresInside("&mode=tx-aside"),
	}
}

// postgresInside is a server that keeps the register as well.
func postgresInside(query string) func(*matrix.Lab) (*matrix.System, error) {
	return func(lab *matrix.Lab) (*matrix.System, error) {
		sys, clients, err := startPostgres(lab, query)
		if err != nil {
			return sys, err
		}
		sys.Stranger = clients.stranger
		sys.Register = func(name string) ([]matrix.Entry, error) {
			return readRegister(testserver.PostgresURL(clients.current, "postgres"), name)
		}
		return sys, createRegister(testserver.PostgresURL(clients.current, "postgres"))
	}
}

// movable leads workers to the primary, also after a failover.
type movable struct {
	lab     *matrix.Lab
	current string
	query   string
	all     []conformance.Proxies
}

func (m *movable) client() (string, conformance.Network, error) {
	ps, err := m.lab.Proxy(m.current)
	if err != nil {
		return "", nil, err
	}
	m.all = append(m.all, ps)
	return testserver.PostgresURL(ps.Addrs(), "postgres") + m.query, ps, nil
}

func (m *movable) moveTo(addr string) {
	m.current = addr
	for _, ps := range m.all {
		ps[0].Retarget(addr)
	}
}

// stranger is another program's advisory lock.
func (m *movable) stranger(name string) (release func() error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, testserver.PostgresURL(m.current, "postgres"))
	if err != nil {
		return nil, err
	}
	m.lab.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, name)
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		defer cancel()
		_, err := conn.Exec(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, name)
		return err
	}, err
}

func ensureSchema(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	l, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	return l.EnsureSchema(ctx)
}
