package postgres_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
)

func TestConformance(t *testing.T) { conforms(t, "leases") }

// TestConformanceOfSessions has a name of its own, because make test runs each backend's TestConformance with the race detector.
func TestConformanceOfSessions(t *testing.T) {
	t.Parallel()
	conforms(t, "sessions")
}

func conforms(t *testing.T, kind string) {
	direct := database(t)
	onPool(t, kind, connect(t, direct)) // the schema
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, conformance.Harness{
		New: func(t testing.TB) conformance.Process {
			p := conformance.NewProxy(t, u.Host)
			pool := unasked(t, testserver.PostgresURL(p.Addr(), u.Path[1:])+"&pool_max_conns=100") // so many session locks there may be
			l := opened(t, kind, pool)
			if kind == "leases" {
				for range 3 { // its connection is prepared: what a clause loses is what it asks for, and no preparation
					unlock(t, lock(t, l, "warm up"))
					eventually(t, func() string { // what is done once, in the background, keeps no connection from the clause
						if stat := pool.Stat(); stat.AcquireCount() < 3 || stat.AcquiredConns() > 0 {
							return "the pool is in use"
						}
						return ""
					})
				}
			}
			return conformance.Process{Locker: l, Network: p}
		},
	})
}

// process makes a Locker that comes and goes without touching the schema.
func process(tb testing.TB, kind, url string) lockerUnderTest {
	tb.Helper()
	return opened(tb, kind, unasked(tb, url))
}

// unasked is a pool whose connections are not asked for a sign of life first, as the package
// doc advises.
func unasked(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	return poolWith(tb, url, func(c *pgxpool.Config) {
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
}
