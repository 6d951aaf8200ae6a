package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

func TestLockExcludesAndTokensIncreaseWhateverTheName(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a, b := open(t, url), open(t, url)
		for _, name := range []string{
			"it's a \"name\"\n with %s / ünicode", "'; DROP TABLE lockstile_lock; --", "$1", "\\'", " ", "a b c", "\u202e", "🔒",
			strings.Repeat("x", locker.MaxName),
		} {
			first := lock(t, a, name)
			if _, err := b.TryLock(context.Background(), name); !errors.Is(err, locker.ErrTaken) {
				t.Fatalf("TryLock of a held lock %q: %v", name, err)
			}
			if _, err := a.TryLock(context.Background(), name); !errors.Is(err, locker.ErrTaken) {
				t.Fatalf("TryLock of a lock held by the same Locker %q: %v", name, err)
			}
			unlock(t, first)
			second := lock(t, b, name)
			if second.Token() <= first.Token() {
				t.Errorf("token %d follows %d", second.Token(), first.Token())
			}
			waiter := make(chan error, 1)
			go func() { // notifications carry the name too
				third, err := a.Lock(soon(t), name, locker.WithTTL(long))
				if err == nil {
					err = third.Unlock(context.Background())
				}
				waiter <- err
			}()
			queued(t, b, name, 1)
			unlock(t, second)
			if err := <-waiter; err != nil {
				t.Errorf("Lock of %q: %v", name, err)
			}
		}
	})
}

func TestInspectTellsWhoHoldsAndBreakFrees(t *testing.T) {
	t.Parallel()
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a, b := open(t, url), open(t, url)
		if broken, err := b.Break(soon(t), "a"); broken || err != nil {
			t.Errorf("Break of a free lock: %v, %v", broken, err)
		}
		held := lock(t, a, "a", locker.WithHolder("me"), locker.WithTTL(5*time.Second))
		info, err := b.Inspect(soon(t), "a")
		if err != nil || !info.Held || info.Holder != "me" || info.Token != held.Token() {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		if broken, err := b.Break(soon(t), "a"); !broken || err != nil {
			t.Errorf("Break of a held lock: %v, %v", broken, err)
		}
		select {
		case <-held.Lost():
		case <-time.After(patience):
			t.Fatal("the holder was not told")
		}
		var lost *locker.LostError
		if !errors.As(held.Err(), &lost) || lost.Reason != locker.Forced && lost.Reason != locker.SessionEnded {
			t.Errorf("the holder was told: %v", held.Err())
		}
		second := lock(t, b, "a")
		if second.Token() <= held.Token() {
			t.Errorf("token %d follows %d", second.Token(), held.Token())
		}
		unlock(t, second)
		if info, err := b.Inspect(soon(t), "a"); err != nil || info.Held {
			t.Errorf("Inspect of a free lock: %+v, %v", info, err)
		}
	})
}

func TestErrorWithoutSchemaSaysWhatToDo(t *testing.T) {
	for kind, open := range kinds {
		l, err := open(connect(t, database(t)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.TryLock(soon(t), "a")
		if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "EnsureSchema") {
			t.Errorf("%s: TryLock without a schema: %v", kind, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSchemaCanBeAppliedAgainWhileLocksAreHeld(t *testing.T) {
	l := newLocker(t, database(t), postgres.Options{})
	held := lock(t, l, "a")
	if err := l.EnsureSchema(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := held.Renew(soon(t)); err != nil {
		t.Error(err)
	}
	unlock(t, held)
}

func TestServerWithoutSynchronousStandbyIsRefusedWhereOneWasDeclared(t *testing.T) {
	pool := connect(t, database(t))
	opts := postgres.Options{SyncStandby: true}
	leases, err := postgres.New(pool, opts)
	ready(t, leases, err)
	sessions, err := postgres.NewSession(pool, opts)
	ready(t, sessions, err)
	for _, l := range []locker.Locker{leases, sessions} {
		if _, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "synchronous_standby_names") {
			t.Errorf("TryLock: %v", err)
		}
		if err := locker.Require(l, locker.Correctness); err != nil {
			t.Error(err)
		}
	}
}

func TestOptionsThatCannotBeHonouredAreErrors(t *testing.T) {
	pool := connect(t, "postgres://nobody@127.0.0.1:1/none")
	for _, poll := range []time.Duration{-1, time.Minute} {
		if _, err := postgres.New(pool, postgres.Options{Poll: poll}); err == nil {
			t.Errorf("New accepts Poll %v", poll)
		}
	}
	if _, err := postgres.New(nil, postgres.Options{}); err == nil {
		t.Error("New accepts no pool")
	}
	if _, err := postgres.NewSession(nil, postgres.Options{}); err == nil {
		t.Error("NewSession accepts no pool")
	}
}

func TestPasswordsStayOutOfErrors(t *testing.T) {
	l, err := postgres.New(connect(t, "postgres://nobody:hunter2@127.0.0.1:1/none"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.TryLock(soon(t), "a")
	if !errors.Is(err, locker.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("TryLock without a server: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
