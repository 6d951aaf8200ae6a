package testbed

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
	"github.com/lockstile/locker/proof/matrix"
)

func postgresSyncSubject() matrix.Subject {
	return matrix.Subject{
		Name: "postgres+sync", About: "lease rows; the standby that may take over is synchronous (SyncStandby)",
		Guarantees: syncGuarantees(), Start: postgresWithSyncStandby(false),
	}
}

// PostgresPromotingAnother is "postgres+sync" run against its rule: there is a synchronous
// standby, and another one takes over. So its declaration, which is the same, is false.
func PostgresPromotingAnother() matrix.Subject {
	s := postgresSyncSubject()
	s.Name, s.Start = "postgres+sync, another promoted", postgresWithSyncStandby(true)
	s.TTL = 3 * time.Second // so that the next one gets the lock before the holder looks
	return s
}

// syncGuarantees are those of SyncStandby, without a database. A test of this package
// compares them with a Locker's own.
func syncGuarantees() locker.Guarantees {
	g := new(postgres.Locker).Guarantees()
	g.Exclusion &^= locker.DurableReplica
	g.Tokens &^= locker.DurableReplica
	return g
}

// synchronous has the server wait for the first standby, and a standby come back soon after
// its primary.
var synchronous = []string{"synchronous_standby_names=*", "wal_retrieve_retry_interval=100ms"}

// postgresWithSyncStandby starts a primary with a standby that takes over. If
// another standby came first, that is the synchronous one.
func postgresWithSyncStandby(another bool) func(*matrix.Lab) (*matrix.System, error) {
	return func(lab *matrix.Lab) (*matrix.System, error) {
		clocks := newClocks(lab, 2)
		clock, ahead := clocks[0], clocks[1]
		primary := testserver.PostgresWithEnv(lab, clock.env(), synchronous...)
		standbys := 1
		if another {
			standbys++
			testserver.PostgresStandby(lab, primary, primary.Addr(), clock.env())
		}
		standby, stream := standbyOf(lab, primary, clock)
		clients := &movable{lab: lab, current: primary.Addr(), query: "&sync_standby=true"}
		return clients.system(primary, clock, takeOver{
			lag: func() {
				must(lab, "standby", caughtUp(primary.URL("postgres"), standbys))
				stream.Cut()
			},
			ahead: ahead.hourAhead(lab, func() func() (time.Time, error) {
				standby.Kill()
				standby, _ = standbyOf(lab, primary, ahead)
				return timeOfPostgres(standby)
			}),
			promote: func() *testserver.PostgresServer {
				standby.Promote()
				testserver.PostgresStandby(lab, standby, standby.Addr(), clock.env()) // it waits for one as well
				return standby
			},
		})
	}
}

// caughtUp waits until that many standbys have everything, also what no disk has been waited
// for, such as a release.
func caughtUp(url string, standbys int) error {
	return askPostgres(url, func(ctx context.Context, conn *pgx.Conn) error {
		var place string
		if err := conn.QueryRow(ctx, `SELECT pg_logical_emit_message(true, '', '')::text`).Scan(&place); err != nil {
			return err
		}
		for {
			var n int
			err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= $1::text::pg_lsn`, place).Scan(&n)
			switch {
			case err != nil:
				return fmt.Errorf("%d of %d standbys have caught up: %w", n, standbys, err)
			case n >= standbys:
				return nil
			}
			time.Sleep(10 * time.Millisecond) // ctx ends the loop
		}
	})
}
