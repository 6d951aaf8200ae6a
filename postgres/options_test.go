package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// If nothing is said of standbys, a failover may send tokens back: that is not enough for
// correctness. A server that nothing ever replaces is enough.
func TestWhatIsSaidOfStandbysDecidesWhatIsPromised(t *testing.T) {
	pool, err := pgxpool.New(context.Background(), "postgres://nowhere.invalid/db") // it connects when it is used
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, c := range []struct {
		opts   postgres.Options
		good   bool
		clocks bool // whether a successor's clock may end a lease
	}{
		{postgres.Options{}, false, true},
		{postgres.Options{SyncStandby: true}, true, true},
		{postgres.Options{NoStandby: true}, true, false},
	} {
		leases, err := postgres.New(pool, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		defer leases.Close()
		session, err := postgres.NewSession(pool, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		for _, l := range []locker.Locker{leases, session} {
			if err := locker.Require(l, locker.Correctness); (err == nil) != c.good {
				t.Errorf("%T with %+v: %v", l, c.opts, err)
			}
		}
		if leans := leases.Guarantees().Exclusion&locker.DurableReplica != 0; leans == c.good {
			t.Errorf("%+v: exclusion assumes a durable replica: %v", c.opts, leans)
		}
		if leans := session.Guarantees().Exclusion.Has(locker.DurableReplica); leans == c.opts.NoStandby {
			t.Errorf("%+v: exclusion by advisory locks, which no standby has, assumes a durable replica: %v", c.opts, leans)
		}
		if leans := leases.Guarantees().Exclusion.Has(locker.AgreedClocks); leans != c.clocks {
			t.Errorf("%+v: exclusion assumes clocks that agree: %v", c.opts, leans)
		}
	}
	both := postgres.Options{SyncStandby: true, NoStandby: true}
	if _, err := postgres.New(pool, both); err == nil {
		t.Error("New takes both")
	}
	if _, err := postgres.NewSession(pool, both); err == nil {
		t.Error("NewSession takes both")
	}
}
