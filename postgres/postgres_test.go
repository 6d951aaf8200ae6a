package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

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
	for _, poll := range []time.Duration{-1, 501 * time.Millisecond} {
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

func TestDatabaseInAnotherEncodingIsRefused(t *testing.T) {
	s := shared(t)
	pool := connect(t, s.URL(newDatabase(t, s, "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")))
	for kind, open := range kinds {
		l, err := open(pool)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.EnsureSchema(soon(t)); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "UTF8") {
			t.Errorf("%s: EnsureSchema: %v", kind, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
