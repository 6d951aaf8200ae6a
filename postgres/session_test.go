package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

func TestSessionLocksShareOneConnection(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	l := newSession(t, url)
	for _, name := range []string{"a", "b", "c", "d"} {
		lock(t, l, name)
	}
	pids := `SELECT count(DISTINCT pid)::int FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	if n := query[int](t, admin, pids); n != 1 {
		t.Errorf("4 locks are on %d connections", n)
	}
}

// Goal: whoever locks by hand, as the documentation says, is one of us.
func TestSessionLocksExcludeAdvisoryLocksTakenByHand(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	admin, err := connect(t, url).Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Release()
	try := func(function string) (ok bool) {
		t.Helper()
		err := admin.QueryRow(context.Background(), `SELECT `+function+`(hashtextextended('a', 0))`).Scan(&ok)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	held := lock(t, l, "a")
	if try("pg_try_advisory_lock") {
		t.Error("psql got a lock that is held")
	}
	unlock(t, held)
	if !try("pg_try_advisory_lock") {
		t.Error("psql did not get a lock that is free")
	}
	if _, err := l.TryLock(context.Background(), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of a lock that psql holds: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		held, err := l.Lock(soon(t), "a", locker.WithTTL(long))
		if err == nil {
			err = held.Unlock(context.Background())
		}
		got <- err
	}()
	queued(t, l, "a", 1)
	try("pg_advisory_unlock")
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: the server counts the locks of a connection together, so what is given
// back late must not be the next goroutine's. Method: hold after hold runs into
// its maximum, and is released behind its holder's back while the next begins.
func TestLateReleaseOfALostSessionLockSparesTheNextHolder(t *testing.T) {
	url := database(t)
	a, b := newSession(t, url), newSession(t, url)
	for range 10 {
		first := lock(t, a, "a", locker.WithMaxHold(20*time.Millisecond))
		second := lock(t, a, "a", locker.WithTTL(long)) // the same connection
		if err := first.Unlock(context.Background()); !errors.Is(err, locker.ErrLost) {
			t.Fatalf("Unlock after the maximum hold: %v", err)
		}
		// An answer from the connection comes after everything before it.
		if err := second.Renew(soon(t)); err != nil {
			t.Fatal(err)
		}
		if other, err := b.TryLock(context.Background(), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Fatalf("TryLock of a lock that its holder's predecessor has given back late: %v, %v", other, err)
		}
		unlock(t, second)
		unlock(t, lock(t, b, "a")) // and nothing was counted twice
	}
}

func TestSessionLocksRefuseAPooler(t *testing.T) {
	s := shared(t)
	bouncer := testserver.PgBouncer(t, s, "transaction")
	l := newSession(t, bouncer.URL(newDatabase(t, s, "")))
	_, err := l.TryLock(context.Background(), "a")
	if err == nil || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("TryLock through PgBouncer: %v", err)
	}
	if _, err := postgres.NewSession(connect(t, s.URL("postgres")), postgres.Options{Poll: time.Millisecond}); err == nil {
		t.Error("NewSession accepts Poll")
	}
}

func TestLeasesWorkThroughPgBouncerInTransactionMode(t *testing.T) {
	s := shared(t)
	bouncer := testserver.PgBouncer(t, s, "transaction")
	url := bouncer.URL(newDatabase(t, s, ""))
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	held := lock(t, a, "a", locker.WithTTL(long))
	if _, err := b.TryLock(context.Background(), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of a held lock: %v", err)
	}
	got := make(chan *locker.Lock, 1)
	go func() {
		second, err := b.Lock(soon(t), "a")
		if err != nil {
			t.Errorf("Lock: %v", err)
		}
		got <- second
	}()
	queued(t, a, "a", 1)
	if err := held.Renew(soon(t)); err != nil {
		t.Errorf("Renew: %v", err)
	}
	unlock(t, held)
	second := <-got
	if second == nil {
		return
	}
	if second.Token() <= held.Token() {
		t.Errorf("token %d follows %d", second.Token(), held.Token())
	}
	unlock(t, second)
}

// Goal: the server frees what a process that hangs holds, though its connection
// lives, and not before that process has stopped believing.
func TestSessionThatSaysNothingIsEndedByTheServer(t *testing.T) {
	t.Parallel()
	url := database(t)
	b := newSession(t, url)
	pool, w := wired(t, url)
	a := onPool(t, "/sessions", pool)
	held := lock(t, a, "a", locker.WithTTL(time.Second))
	w.cut(slow)
	second := lock(t, b, "a") // nobody mends the network
	if err := held.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the first holder still believed when the second was granted: %v", err)
	}
	unlock(t, second)
}

// Goal: the server's patience follows the locks that are held. Method: a lock with
// a long TTL is got after, before, beside, and from the hands of one with a short
// TTL, and nothing is said for longer than the short one's patience.
func TestPatienceOfTheServerSuitsTheLongestLock(t *testing.T) {
	short := []locker.Option{locker.WithTTL(500 * time.Millisecond), locker.WithoutRenewal()}
	for name, prepare := range map[string]func(t *testing.T, l locker.Locker) *locker.Lock{
		"after": func(t *testing.T, l locker.Locker) *locker.Lock {
			_ = brief(t, l, "b", short...).Unlock(context.Background()) // which may have ended
			return lock(t, l, "a", locker.WithTTL(long))
		},
		"before": func(t *testing.T, l locker.Locker) *locker.Lock {
			held := lock(t, l, "a", locker.WithTTL(long))
			brief(t, l, "b", short...)
			return held
		},
		"beside": func(t *testing.T, l locker.Locker) *locker.Lock {
			brief(t, l, "b", short...)
			return lock(t, l, "a", locker.WithTTL(long))
		},
		"from": func(t *testing.T, l locker.Locker) *locker.Lock {
			brief(t, l, "b", short...)
			first := brief(t, l, "a", short...)
			ctx := &watched{Context: soon(t), asked: make(chan struct{})}
			got := make(chan *locker.Lock, 1)
			go func() {
				held, err := l.Lock(ctx, "a", locker.WithTTL(long))
				if err != nil {
					t.Errorf("Lock: %v", err)
				}
				got <- held
			}()
			<-ctx.asked                            // it is about to wait in line
			_ = first.Unlock(context.Background()) // which is no longer held on a slow machine
			return <-got
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := prepare(t, newSession(t, database(t)))
			select {
			case <-held.Lost():
				t.Errorf("the server ended a session whose longest lock had %v: %v", long, held.Err())
			case <-time.After(3 * time.Second):
				unlock(t, held)
			}
		})
	}
}

// Goal: a lock that ends with its TTL is given back, and the others that are on
// the same connection stay.
func TestSessionLockThatExpiresIsGivenBackAlone(t *testing.T) {
	url := database(t)
	a, b := newSession(t, url), newSession(t, url)
	stays := lock(t, a, "stays", locker.WithTTL(long))
	first := brief(t, a, "a", locker.WithTTL(500*time.Millisecond), locker.WithoutRenewal())
	second := lock(t, b, "a")
	if err := first.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the first holder still believed when the second was granted: %v", err)
	}
	if err := stays.Renew(soon(t)); err != nil {
		t.Errorf("another lock on the connection: %v", err)
	}
	unlock(t, second)
	unlock(t, stays)
}

// watched is a context that says when somebody begins to wait for its end.
type watched struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.asked) })
	return w.Context.Done()
}

// The holder may unlock before it has heard that its session was ended.
func TestUnlockRightAfterABreakSaysThatTheLockWasLost(t *testing.T) {
	url := database(t)
	breaker := newSession(t, url)
	for range 5 {
		held := lock(t, newSession(t, url), "a")
		if broken, err := breaker.Break(soon(t), "a"); !broken || err != nil {
			t.Fatalf("Break: %v, %v", broken, err)
		}
		if err := held.Unlock(soon(t)); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	}
}

// Unlock is on its way when the session ends: its statement is behind another
// one, and the end comes before its turn. The lock ended with the session.
func TestUnlockThatTheEndOfTheSessionOvertakesSaysThatTheLockWasLost(t *testing.T) {
	url := database(t)
	breaker, l := newSession(t, url), newSession(t, url)
	held := lock(t, l, "a")
	busy, err := postgres.Busy(l)
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, url)
	eventually(t, func() string {
		if query[int](t, admin, `SELECT count(*)::int FROM pg_stat_activity WHERE wait_event = 'PgSleep'
			AND datname = current_database()`) == 1 {
			return ""
		}
		return "the statement does not run"
	})
	unlocked := make(chan error, 1)
	go func() { unlocked <- held.Unlock(context.Background()) }()
	eventually(t, func() string {
		if postgres.Queued(l) == 1 {
			return ""
		}
		return "the release is not queued"
	})
	if broken, err := breaker.Break(soon(t), "a"); !broken || err != nil {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	if err := <-unlocked; !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	<-busy
}
