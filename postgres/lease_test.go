package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/postgres"
)

// Goal: only the holder renews and releases. Method: the row is given to somebody
// else behind the holder's back.
func TestHolderThatWasReplacedIsToldAndTouchesNothing(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	l := newLocker(t, url, postgres.Options{})
	renews, unlocks := lock(t, l, "a", locker.WithTTL(long)), lock(t, l, "b", locker.WithTTL(long))
	exec(t, admin, `UPDATE lockstile_lease SET value = 'other', expires = now() + interval '1 hour'`)
	exec(t, admin, `INSERT INTO lockstile_mark VALUES ('broken', true, now() + interval '1 hour')`)
	var lost *locker.LostError
	if err := renews.Renew(soon(t)); !errors.As(err, &lost) || lost.Reason != locker.ReasonTakenOver {
		t.Errorf("Renew: %v", err)
	}
	if err := unlocks.Unlock(context.Background()); !errors.As(err, &lost) || lost.Reason != locker.ReasonTakenOver {
		t.Errorf("Unlock: %v", err)
	}
	untouched := `SELECT count(*)::int FROM lockstile_lease WHERE value = 'other' AND expires BETWEEN now() + interval '50 minutes' AND now() + interval '1 hour'`
	if n := query[int](t, admin, untouched); n != 2 {
		t.Errorf("%d of 2 rows are as they were", n)
	}
}

// Goal: a lease that has ended is over, also where nobody has taken it yet.
func TestLeaseThatEndedInTheStoreIsNotRenewed(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	held := lock(t, l, "a", locker.WithTTL(long))
	exec(t, connect(t, url), `UPDATE lockstile_lease SET expires = clock_timestamp() - interval '1 second'`)
	if err := held.Renew(soon(t)); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Renew: %v", err)
	}
}

// Goal: of locks that are renewed together each lasts for its own TTL, and what others have
// under the same names is left alone. Method: the statement itself.
func TestRenewalGivesEachLockItsOwnTTLAndOthersNothing(t *testing.T) {
	url := database(t)
	newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	exec(t, admin, `INSERT INTO lockstile_lease SELECT name, value, false, 1024, '', clock_timestamp() + interval '20 seconds', -1
		FROM unnest(ARRAY['a', 'b'], ARRAY['long', 'short']) mine(name, value) UNION ALL
		VALUES ('a', 'another', false, 2048, '', now() + interval '1 hour', -1)`)
	exec(t, admin, `SELECT lockstile_renew_5(ARRAY['a', 'b'], ARRAY['long', 'short'], ARRAY[36000000, 60000], false)`)
	for value, want := range map[string]string{"long": "2 h and 10 h", "short": "30 s and 60 s", "another": "50 min and 1 h"} {
		from, to, _ := strings.Cut(want, " and ")
		if !query[bool](t, admin, `SELECT expires BETWEEN clock_timestamp() + $2::text::interval AND clock_timestamp() + $3::text::interval
			FROM lockstile_lease WHERE value = $1`, value, from, to) {
			t.Errorf("what is left of the lease %q is not between %s", value, want)
		}
	}
}

// Goal: a request that arrives twice is granted once.
func TestSecondRequestOfTheHolderIsAnsweredWithTheSameToken(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	held := lock(t, l, "a", locker.WithTTL(long))
	token := query[fencing.Token](t, connect(t, url),
		`SELECT (lockstile_acquire_5(name, value, 600000, '', false, '', 0, 0, false))._token FROM lockstile_lease`)
	if token != held.Token() {
		t.Errorf("the holder has token %d, its second request %d", held.Token(), token)
	}
	unlock(t, held)
}

// A request has no answer and is still on its way. The next one is answered, which says nothing
// of the first: that arrives after the unlock.
func TestAnswerToASecondRequestIsNoneToTheFirst(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	if err := postgres.LateRequest(soon(t), l, "a"); !errors.Is(err, postgres.ErrWithdrawn) {
		t.Errorf("late request: %v", err)
	}
	if left := query[float64](t, connect(t, url), `SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM lockstile_mark`); left < 75 {
		t.Errorf("it is refused for %v seconds more, and not for a minute and the TTL of 30 seconds", left)
	}
}

// Goal: a holder that renews its lock hours later still hears that it was broken, and not that
// another one took it over. Method: in the tables ten minutes go by.
func TestHolderHearsThatItsLockWasBrokenHoweverLateItAsks(t *testing.T) {
	url := database(t)
	l, admin := newLocker(t, url, postgres.Options{}), connect(t, url)
	held := lock(t, l, "a", locker.WithTTL(locker.MaxTTL))
	if broken, err := l.Break(soon(t), "a"); !broken || err != nil {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	exec(t, admin, `UPDATE lockstile_mark SET until = until - interval '10 minutes'`)
	exec(t, admin, `SELECT lockstile_sweep_5()`)
	var lost *locker.LostError
	if err := held.Renew(soon(t)); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced {
		t.Errorf("Renew: %v", err)
	}
}

// Goal: nobody is said to have, or to have had, what nobody had. Method: a lease that has
// ended, and a lock that is reserved for a waiter, which has no token yet.
func TestWhatNobodyHoldsIsNotShownAndNotBroken(t *testing.T) {
	url := database(t)
	l, admin := newLocker(t, url, postgres.Options{}), connect(t, url)
	exec(t, admin, `INSERT INTO lockstile_lease VALUES ('ended', 'x', false, 7, '', clock_timestamp()), ('reserved', 'y', true, 0, '', now() + interval '1 hour')`)
	for _, name := range []string{"ended", "reserved"} {
		if info, err := l.Inspect(soon(t), name); err != nil || info.Held {
			t.Errorf("Inspect of what is %s: %+v, %v", name, info, err)
		}
		if broken, err := l.Break(soon(t), name); broken || err != nil {
			t.Errorf("Break of what is %s: %v, %v", name, broken, err)
		}
		if broken, err := l.BreakHolder(soon(t), name, 7); broken || err != nil {
			t.Errorf("BreakHolder of what is %s: %v, %v", name, broken, err)
		}
	}
	if infos, err := l.List(soon(t), ""); err != nil || len(infos) != 0 {
		t.Errorf("List: %+v, %v", infos, err)
	}
	if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_lease WHERE reserved`); n != 1 {
		t.Error("the reservation of a waiter is gone")
	}
}

// Goal: a renewal that has not committed yet is waited for. Method: a transaction
// by hand extends a lease at its end, and commits only when somebody waits.
func TestTakeoverWaitsForARenewalUnderWay(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	lock(t, a, "a", locker.WithTTL(long))
	renewal, err := admin.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, `UPDATE lockstile_lease SET expires = clock_timestamp()`)
	if _, err := renewal.Exec(soon(t), `UPDATE lockstile_lease SET expires = clock_timestamp() + interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := b.TryLock(soon(t), "a")
		got <- err
	}()
	eventually(t, func() string {
		select {
		case err := <-got:
			t.Fatalf("TryLock did not wait for the renewal: %v", err)
		default:
		}
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE NOT granted`) == 0 {
			return "TryLock does not wait for the renewal"
		}
		return ""
	})
	if err := renewal.Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of a lease that was being renewed: %v", err)
	}
}

// Goal: a release is one step with what it finds: nobody queues up between its
// look and its end. Method: a transaction by hand deals with the name.
func TestReleaseWaitsForWhoeverDealsWithTheName(t *testing.T) {
	for kind, opts := range map[string][]locker.Option{"exclusive": nil, "shared": {locker.WithShared()}} {
		t.Run(kind, func(t *testing.T) { releaseWaits(t, opts...) })
	}
}

func releaseWaits(t *testing.T, opts ...locker.Option) {
	url := database(t)
	admin := connect(t, url)
	held := lock(t, newLocker(t, url, postgres.Options{}), "a", append(opts, locker.WithTTL(long))...)
	tx, err := admin.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(soon(t), `SELECT pg_advisory_xact_lock(1819239275, hashtext('a'))`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- held.Unlock(context.Background()) }()
	eventually(t, func() string {
		select {
		case err := <-done:
			t.Fatalf("Unlock did not wait: %v", err)
		default:
		}
		if query[int](t, admin, `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 0 {
			return "Unlock does not wait"
		}
		return ""
	})
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil && !errors.Is(err, context.DeadlineExceeded) { // on a slow machine
		t.Error(err)
	}
}

// Goal: what was withdrawn is refused for as long as was asked, also where another
// process clears away meanwhile what the dead have left, and gets no place in the
// queue. Method: the statements themselves.
func TestSweepSparesWhatWasWithdrawnForAsLongAsItMayArrive(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	held := lock(t, newLocker(t, url, postgres.Options{}), "taken")
	for _, refuse := range []int{1, 60000, 1} { // the longest counts
		if code := query[int](t, admin, `SELECT lockstile_release_5('a', 'late', true, $1, 0)`, refuse); code != -1 {
			t.Errorf("the withdrawal of what was not granted is answered with %d", code)
		}
	}
	exec(t, admin, `SELECT pg_sleep(0.01)`) // by the server's clock the shorter ones are over
	exec(t, admin, `SELECT lockstile_sweep_5()`)
	for _, name := range []string{"a", "taken"} {
		token := query[int64](t, admin, `SELECT (lockstile_acquire_5($1, 'late', 600000, '', true, '', 600000, 0, false))._token`, name)
		if token != -1 {
			t.Errorf("what was withdrawn for a minute and arrives now was answered %d", token)
		}
	}
	if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_queue`); n != 0 {
		t.Error("it waits")
	}
	unlock(t, held)
}

// Goal: what the dead left goes, however much it is, again and again, and nothing else.
// Method: more than one step removes, put there by hand; a lock that is held, one that ended
// a moment ago, a waiter and a mark that are wanted.
func TestSweepGoesOnUntilNothingIsLeft(t *testing.T) {
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	exec(t, admin, `INSERT INTO lockstile_lease VALUES ('ended', 'x', false, 1, '', clock_timestamp())`)
	exec(t, admin, `INSERT INTO lockstile_queue VALUES ('live', 1, 'x', '', clock_timestamp() + interval '1 hour')`)
	exec(t, admin, `INSERT INTO lockstile_mark VALUES ('live', false, clock_timestamp() + interval '1 hour')`)
	held := lock(t, l, "held")
	for _, left := range []string{
		`lockstile_lease SELECT 'dead ' || i, 'x', false, i, '', clock_timestamp() - interval '2 minutes' FROM generate_series(1, 250) i`,
		`lockstile_queue SELECT 'dead', i, 'x', '', clock_timestamp() - interval '1 second' FROM generate_series(1, 2500) i`,
		`lockstile_mark SELECT 'dead ' || i, false, clock_timestamp() - interval '1 second' FROM generate_series(1, 2500) i`,
	} {
		exec(t, admin, `INSERT INTO `+left)
		postgres.SweepDue(l)
		unlock(t, lock(t, l, "another"))
		eventually(t, func() string {
			rows := query[string](t, admin, `SELECT (SELECT count(*) FROM lockstile_lease) || ' leases, ' || (SELECT count(*) FROM lockstile_queue)
				|| ' waiters, ' || (SELECT count(*) FROM lockstile_mark) || ' marks'`)
			if rows != "2 leases, 1 waiters, 1 marks" {
				return rows
			}
			return ""
		})
	}
	unlock(t, held)
}

// Goal: clearing away what the dead have left waits for nobody, for it may have the only
// connection of a pool meanwhile, and takes no row from under a transaction that deals with
// the name. Method: each name has two dead readers. A transaction by hand locks the row of
// one of them, as another process that clears away does, and deals with another name.
func TestSweepWaitsForNoRowThatIsStuck(t *testing.T) {
	url := database(t)
	newLocker(t, url, postgres.Options{})
	admin := connect(t, url+"&lock_timeout=5000")
	exec(t, admin, `INSERT INTO lockstile_lease SELECT 'dead ' || i, value, false, i, '', clock_timestamp() - interval '2 minutes', -1
		FROM generate_series(1, 4) i, unnest(ARRAY['x', 'y']) value`)
	tx := begun(t, url)
	ask[string](t, tx, `SELECT name FROM lockstile_lease WHERE name = 'dead 2' AND value = 'y' FOR UPDATE`)
	ask[bool](t, tx, `SELECT lockstile_enter('dead 3', false)`)
	if swept := query[int](t, admin, `SELECT lockstile_sweep_5()`); swept != 5 {
		t.Errorf("%d rows were cleared away, want the 5 that nobody has locked", swept)
	}
	if n := query[int](t, admin, `SELECT count(*)::int FROM lockstile_lease WHERE name = 'dead 3'`); n != 2 {
		t.Errorf("%d rows are left of a name that somebody deals with, want both", n)
	}
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// panics is a hook that panics when the answer to a caller's statement has come, if the
// context says so.
type panics struct{ on string }

// recovering is the key of callers that recover.
type recovering struct{}

func (panics) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, panics{}, data.SQL)
}

func (p panics) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(panics{}).(string); ctx.Value(recovering{}) != nil && strings.Contains(sql, p.on) {
		panic("the hook")
	}
}

// Goal: a hook of the caller's that panics, and is recovered from, leaves no lock
// behind and keeps nobody waiting.
func TestHookThatPanicsLeavesNoLockBehind(t *testing.T) {
	t.Parallel()
	for _, on := range []string{"lockstile_acquire", "lockstile_release"} {
		url := database(t)
		b := newLocker(t, url, postgres.Options{})
		pool := poolWith(t, url, func(c *pgxpool.Config) { c.ConnConfig.Tracer = panics{on} })
		a, err := postgres.New(pool, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 * pool.Config().MaxConns {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: the hook has not panicked", on)
					}
				}()
				ctx := context.WithValue(soon(t), recovering{}, true)
				held, err := a.TryLock(ctx, "a", locker.WithTTL(long))
				if err != nil {
					t.Errorf("%s: TryLock: %v", on, err)
					return
				}
				_ = held.Unlock(ctx)
			}()
			unlock(t, lock(t, b, "a"))
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Goal: a release frees the lock though no answer to it ever comes, also where the connection
// is just used often enough to have its statements prepared: that comes after the release.
func TestReleaseWaitsForNoPreparation(t *testing.T) {
	t.Parallel()
	url := database(t)
	b := newLocker(t, url, postgres.Options{})
	pool, w := wired(t, url+"&pool_max_conns=1")
	a := opened(t, "a/leases", pool)
	first := lock(t, a, "a", locker.WithTTL(long))
	lock(t, a, "b", locker.WithTTL(long))
	w.cut(deaf)
	done := make(chan error, 1)
	go func() { done <- first.Unlock(context.Background()) }()
	unlock(t, lock(t, b, "a"))
	if err := <-done; !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Unlock without an answer: %v", err)
	}
}

// Goal: whoever gives back what has ended is told so, and keeps nobody out.
func TestReleaseOfALeaseThatHasEndedGivesNothingBack(t *testing.T) {
	t.Parallel()
	admin := emptySchema(t)
	for what, sql := range map[string][2]string{
		"exclusive": {`SELECT (lockstile_acquire_5('e', 'v', 1, '', false, '', 0, 0, false))._token`, `SELECT lockstile_release_5('e', 'v', false, 0, 0)`},
		"kept":      {`SELECT (lockstile_acquire_5('k', 'v', 1, '', false, '', 0, 0, false))._token`, `SELECT lockstile_release_5('k', 'v', false, 0, 60000)`},
		"shared":    {`SELECT (lockstile_acquire_5('s', 'v', 1, '', false, '', 0, 0, false, -1))._token`, `SELECT lockstile_release_5('s', 'v', false, 0, 0, true)`},
	} {
		if token := query[int64](t, admin, sql[0]); token <= 0 {
			t.Fatalf("%s: %d", what, token)
		}
		query[string](t, admin, `SELECT pg_sleep(0.01)::text`)
		if code := query[int64](t, admin, sql[1]); code != -1 {
			t.Errorf("%s: its release is answered %d", what, code)
		}
	}
	if n := query[int64](t, admin, `SELECT count(*) FROM lockstile_lease WHERE expires > clock_timestamp()`); n > 0 {
		t.Errorf("%d leases are there", n)
	}
}
