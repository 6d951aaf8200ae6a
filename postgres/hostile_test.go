package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// sameHash are two names of one advisory key.
var sameHash = [2]string{"invoices/2026/number/001", "inv012748447zK7zpbTD6yZC"}

// Goal: a lock is not given back with another that has the same advisory key. An
// attacker who chooses names can find such ones: the server's hash is not cryptographic.
//
// Interleaving (if the connection took the key a second time, for the other name): the
// server counts 2 for it, and it depends on the order of what goes wrong with either
// name when both are given back.
func TestNamesWithTheSameHashExcludeEachOther(t *testing.T) {
	url := database(t)
	one, other := sameHash[0], sameHash[1]
	if !query[bool](t, connect(t, url), `SELECT hashtextextended($1, 0) = hashtextextended($2, 0)`, one, other) {
		t.Fatal("the names have different hashes")
	}
	a, b := newSession(t, url), newSession(t, url)
	held := lock(t, a, one, locker.WithTTL(long))
	for _, l := range []locker.Locker{a, b} {
		if second, err := l.TryLock(soon(t), other, locker.WithTTL(long)); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of a name with the same hash: %v, %v", second, err)
		}
	}
	if info, err := b.Inspect(soon(t), other); err != nil || !info.Held || info.Holder != "" || info.Token != 0 {
		t.Errorf("Inspect of the other name shows the holder of this one: %+v, %v", info, err)
	}
	unlock(t, held)
	unlock(t, lock(t, a, other))
	unlock(t, lock(t, b, one)) // and nothing was counted twice
}

// Goal: one name is one lock. Method: a session in another encoding, in which the
// bytes of a name are other characters.
//
// Interleaving: none is needed. The server would keep the name "ü" as "Ã¼" for the
// one and as "ü" for the other, and grant both.
func TestSessionsInAnotherEncodingAreRefused(t *testing.T) {
	t.Parallel()
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		unlock(t, lock(t, open(t, url), "ü"))
		b := opened(t, t.Name(), connect(t, url+"&client_encoding=LATIN1"))
		_, err := b.TryLock(soon(t), "ü")
		if err == nil || errors.Is(err, locker.ErrTaken) || !strings.Contains(err.Error(), "client_encoding") {
			t.Errorf("TryLock in a session whose encoding is LATIN1: %v", err)
		}
		c := opened(t, t.Name(), connect(t, url+"&client_encoding=SQL_ASCII")) // in which the bytes are taken as they are
		held := lock(t, c, "ü")
		if err := tried(t, opened(t, t.Name(), connect(t, url)), "ü"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of what a session without an encoding holds: %v", err)
		}
		unlock(t, held)
	})
	url := database(t)
	newSession(t, url)
	tx, err := connect(t, url+"&client_encoding=LATIN1").Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := postgres.LockTx(soon(t), tx, "ü"); err == nil || !strings.Contains(err.Error(), "client_encoding") {
		t.Errorf("LockTx in a session whose encoding is LATIN1: %v", err)
	}
}

// Goal: processes that mean the same locks use the same ones. Method: a role gets
// a schema of its own, which comes first in its search path.
//
// Interleaving: none is needed. The next process of that role that applies the
// schema makes itself a second set of tables, empty, with tokens that begin at 1.
func TestSecondSetOfLocksIsNotMadeUnasked(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		a := open(t, url)
		lock(t, a, "a")
		exec(t, connect(t, url), `CREATE SCHEMA postgres AUTHORIZATION postgres`)
		b := opened(t, t.Name(), connect(t, url))
		err := b.EnsureSchema(soon(t))
		if err == nil || !strings.Contains(err.Error(), "public") {
			t.Errorf("EnsureSchema where another schema of the database has the locks: %v", err)
		}
		if _, err := b.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock of a held lock after that: %v", err)
		}
	})
}

// Goal: many processes start at once.
func TestSchemaIsAppliedByTenProcessesAtOnce(t *testing.T) {
	forEachKind(t, func(t *testing.T, _ func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		errs := make(chan error, 10)
		for range cap(errs) {
			l := opened(t, t.Name(), connect(t, url))
			go func() {
				err := l.EnsureSchema(soon(t))
				if err == nil {
					var held *locker.Lock
					if held, err = l.Lock(soon(t), "a"); err == nil {
						err = held.Unlock(context.Background())
					}
				}
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// Goal: the rights that the documentation of Schema lists are enough.
func TestRoleWithTheListedRightsCanDoEverything(t *testing.T) {
	forEachKind(t, func(t *testing.T, open func(testing.TB, string) lockerUnderTest) {
		url := database(t)
		open(t, url)
		admin := connect(t, url)
		role := fmt.Sprintf("role%d", databases.Add(1))
		exec(t, admin, `CREATE ROLE `+role+` LOGIN`)
		exec(t, admin, `REVOKE ALL ON SCHEMA public FROM PUBLIC`)
		exec(t, admin, `GRANT USAGE ON SCHEMA public TO `+role)
		exec(t, admin, `GRANT SELECT, INSERT, UPDATE, DELETE ON lockstile_lease, lockstile_queue, lockstile_mark, lockstile_session, lockstile_known, lockstile_drawn TO `+role)
		exec(t, admin, `GRANT SELECT, USAGE ON SEQUENCE lockstile_token TO `+role)
		url = strings.Replace(url, "postgres@", role+"@", 1)
		a, b := opened(t, t.Name(), connect(t, url)), opened(t, t.Name(), connect(t, url))
		held := lock(t, a, "a", locker.WithTTL(long))
		got := make(chan error, 1)
		go func() {
			second, err := b.Lock(soon(t), "a", locker.WithTTL(long))
			if err == nil {
				_, err = a.Break(soon(t), "a")
				_ = second.Renew(soon(t)) // a lease hears of it only then
				<-second.Lost()
			}
			got <- err
		}()
		queued(t, a, "a", 1)
		if err := held.Renew(soon(t)); err != nil {
			t.Error(err)
		}
		unlock(t, held)
		if err := <-got; err != nil {
			t.Error(err)
		}
		tx, err := connect(t, url).Begin(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.LockTx(soon(t), tx, "b"); err != nil {
			t.Error(err)
		}
		if err := tx.Rollback(soon(t)); err != nil {
			t.Error(err)
		}
	})
}

// A function that anybody may make in a schema of the search path fits our call
// better than the server's own. It must not decide which key a name has.
func TestFunctionOfTheSameNameDoesNotChangeTheKeys(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	if _, err := admin.Exec(soon(t), `CREATE FUNCTION hashtextextended(text, integer) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint'`); err != nil {
		t.Fatal(err)
	}
	l := newSession(t, url)
	held := lock(t, l, "a")
	if query[bool](t, admin, `SELECT pg_try_advisory_lock(pg_catalog.hashtextextended('a', 0::bigint))`) {
		t.Error("the lock has another key than the documentation says")
	}
	unlock(t, lock(t, l, "b")) // another key
	unlock(t, held)
}
