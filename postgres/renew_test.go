package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// occupied takes all connections of a pool for queries that do not end before the
// test does.
func occupied(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = conn.Exec(ctx, `SELECT pg_sleep(3600)`)
			conn.Release()
		}()
		t.Cleanup(func() {
			cancel()
			<-ended
		})
	}
}

// outlives waits until a lock has been renewed for several times its TTL.
func outlives(t *testing.T, held *locker.Lock, ttl time.Duration) {
	t.Helper()
	select {
	case <-held.Lost():
		t.Fatalf("the lock was lost: %v", held.Err())
	case <-time.After(3 * ttl):
	}
}

// Goal: the application's slow queries lose no lock. Method: they take all connections
// of the pool, and a lock with a short TTL lives on.
func TestLockLivesOnWhileTheApplicationHasAllConnections(t *testing.T) {
	t.Parallel()
	url := database(t)
	newLocker(t, url, postgres.Options{})
	var dialed, readied atomic.Int64
	pool := poolWith(t, url+"&pool_max_conns=2", func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			dialed.Add(1)
			c.RuntimeParams["application_name"] = "by the hook"
			return nil
		}
		c.AfterConnect = func(context.Context, *pgx.Conn) error {
			readied.Add(1)
			return nil
		}
	})
	l, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	const ttl = 5 * time.Second
	held := lock(t, l, "a", locker.WithTTL(ttl))
	occupied(t, pool)
	outlives(t, held, ttl)
	if dialed.Load() < 3 || readied.Load() != dialed.Load() {
		t.Errorf("%d connections went through BeforeConnect and %d through AfterConnect: the one for renewals has the pool's hooks", dialed.Load(), readied.Load())
	}
	if n := query[int](t, connect(t, url), `SELECT count(*)::int FROM pg_stat_activity
		WHERE application_name = 'by the hook' AND datname = current_database()`); n != 3 {
		t.Errorf("%d connections with the settings of the hook, want the pool's 2 and 1 for renewals", n)
	}
}

// roleWith makes a role that may lock, with some limits, and returns its name.
func roleWith(t *testing.T, url, limits string) string {
	t.Helper()
	admin := connect(t, url)
	role := fmt.Sprintf("role%d", databases.Add(1))
	exec(t, admin, `CREATE ROLE `+role+` LOGIN `+limits)
	exec(t, admin, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	exec(t, admin, `GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA public TO `+role)
	return role
}

// Goal: where there can be no connection for renewals, they go over the pool.
func TestRenewalsGoOverThePoolWhereTheRoleMayHaveNoOtherConnection(t *testing.T) {
	t.Parallel()
	url := database(t)
	newLocker(t, url, postgres.Options{})
	role := roleWith(t, url, `CONNECTION LIMIT 1`)
	pool := connect(t, strings.Replace(url, "postgres@", role+"@", 1)+"&pool_max_conns=1")
	l, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	const ttl = 5 * time.Second
	held := lock(t, l, "a", locker.WithTTL(ttl))
	outlives(t, held, ttl)
	unlock(t, held)
}

// Goal: a row that somebody has locked holds up no other name's renewal. Method: a
// transaction by hand locks one of many.
func TestLocksLiveOnBesideOneWhoseRowIsStuck(t *testing.T) {
	t.Parallel()
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	const n, ttl = 100, 5 * time.Second
	var held []*locker.Lock
	for i := range n {
		held = append(held, lock(t, l, fmt.Sprint(i), locker.WithTTL(ttl)))
	}
	tx := begun(t, url)
	ask[string](t, tx, `SELECT name FROM lockstile_lease WHERE name = '7' FOR UPDATE`)
	if err := held[7].Renew(soon(t)); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("a lock whose row is stuck was renewed: %v", err)
	}
	select {
	case <-held[7].Lost():
	case <-time.After(patience):
		t.Fatal("a lock that cannot be renewed is believed in")
	}
	outlives(t, held[8], ttl)
	for i, other := range held {
		if err := other.Err(); (err != nil) != (i == 7) {
			t.Errorf("lock %d: %v", i, err)
		}
	}
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// Goal: renewals that meet do each other no harm. Method: many at once of the same
// lock, whose row each of them locks for as long as the disk takes.
func TestRenewalsOfOneLockThatMeetAllWork(t *testing.T) {
	l := newLocker(t, database(t), postgres.Options{})
	held := lock(t, l, "a", locker.WithTTL(long))
	errs := make(chan error, 16)
	for range cap(errs) {
		go func() { errs <- held.Renew(soon(t)) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	unlock(t, held)
}

// Goal: the connection for renewals is made again when it breaks.
func TestRenewalsOutliveTheirConnection(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	l := newLocker(t, url+"&application_name=mine", postgres.Options{})
	held := lock(t, l, "a", locker.WithTTL(long))
	for range 3 {
		if err := held.Renew(soon(t)); err != nil {
			t.Fatal(err)
		}
		exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mine' AND datname = current_database()`)
	}
	if err := held.Renew(soon(t)); err != nil {
		t.Error(err)
	}
	unlock(t, held)
}

// Goal: a renewal does not wait for its own connection until there is no time left.
// Method: that one falls silent, and the pool's is whole. The renewal is told that it has ten
// seconds, and has longer: how soon the pool answers is not asked.
func TestRenewalGoesOverThePoolWhereItsConnectionIsSilent(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool, w := wired(t, url+"&pool_max_conns=1")
	l := onPool(t, "/leases", pool)
	held := lock(t, l, "a", locker.WithTTL(long))
	if err := held.Renew(soon(t)); err != nil { // over a connection of its own
		t.Fatal(err)
	}
	eventually(t, func() string {
		if n := w.opened(); n != 2 {
			return fmt.Sprintf("%d connections are open, not the pool's one and the one for renewals", n)
		}
		return ""
	})
	w.cutLast(deaf)
	if err := held.Renew(unhurried{soon(t), time.Now().Add(10 * time.Second)}); err != nil {
		t.Error(err)
	}
	unlock(t, held)
}

// unhurried is a context that says when it ends, and does not end then.
type unhurried struct {
	context.Context
	end time.Time
}

func (c unhurried) Deadline() (time.Time, bool) { return c.end, true }

// Goal: an owner who closes the pool while locks are held finds that nothing hangs, and
// what cannot be given back any more ends with its lease.
func TestLeaseThatCannotBeGivenBackEnds(t *testing.T) {
	url := database(t)
	pool := connect(t, url)
	l := onPool(t, "/leases", pool)
	held := lock(t, l, "a", locker.WithTTL(time.Second))
	pool.Close()
	if err := held.Unlock(soon(t)); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Unlock after the pool was closed: %v", err)
	}
	unlock(t, lock(t, newLocker(t, url, postgres.Options{}), "a"))
}
