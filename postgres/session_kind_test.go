package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// Goal: the lock is free with the last of a process's readers, whatever the order. Method: psql's view.
func TestReadersOfOneProcessEachGiveBackTheirOwnLock(t *testing.T) {
	url := database(t)
	l, admin := newSession(t, url), connect(t, url)
	elsewhere := lock(t, newSession(t, url), "another", locker.WithTTL(long)) // and somebody waits for it
	got := waits(t, newSession(t, url), "another")
	queued(t, l, "another", 1)
	others := `SELECT pg_try_advisory_lock(hashtextextended('a', 0)) AND pg_advisory_unlock(hashtextextended('a', 0))`
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		var held []*locker.Lock
		for i := range order {
			reader, err := l.TryLock(soon(t), "a", locker.WithShared(), locker.WithTTL(long), locker.WithHolder(fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, reader)
		}
		if _, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock by a writer of the same process: %v", err)
		}
		for n, i := range order {
			if query[bool](t, admin, others) {
				t.Fatal("psql got a lock that is shared")
			}
			unlock(t, held[i])
			if info, err := l.Inspect(soon(t), "a"); err != nil || len(info.Holders) != len(order)-n-1 {
				t.Errorf("after %d of %d have given it back, these are shown to have it: %+v, %v", n+1, len(order), info.Holders, err)
			}
		}
		if !query[bool](t, admin, others) {
			t.Error("psql did not get a lock that all have given back")
		}
	}
	unlock(t, elsewhere)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: a writer waits for readers of its own process.
func TestWriterWaitsForReadersOfItsOwnProcess(t *testing.T) {
	url := database(t)
	l, other := newSession(t, url), newSession(t, url)
	held := lock(t, l, "a", locker.WithShared(), locker.WithTTL(long))
	for _, next := range [][]locker.Option{{locker.WithTTL(long)}, {locker.WithShared(), locker.WithTTL(long)}} {
		got := make(chan *locker.Lock, 1)
		go func() {
			served, err := l.Lock(soon(t), "a", next...)
			if err != nil {
				t.Error(err)
			}
			got <- served
		}()
		eventually(t, func() string {
			select {
			case served := <-got:
				t.Fatalf("it was granted beside another: %v", served.Name())
			default:
			}
			info, err := l.Inspect(soon(t), "a")
			if err != nil || info.Waiters != 1 {
				return fmt.Sprintf("%d wait, %v", info.Waiters, err)
			}
			if shared := held.Token() == 0; shared != (info.Kind == locker.KindShared && len(info.Holders) == 1) {
				t.Fatalf("beside a waiter the holder is shown as %+v", info)
			}
			return ""
		})
		unlock(t, held)
		if held = <-got; held == nil {
			t.FailNow()
		}
		l = other // for within one process a reader waits for a writer in memory
	}
	unlock(t, held)
}

// Goal: a waiter whose statement an administrator cancels waits on, and leaves no turn behind,
// which would keep all later ones out.
func TestWaiterThatAnAdministratorCancelsKeepsNobodyOut(t *testing.T) {
	url := database(t)
	a, b, admin := newSession(t, url), newSession(t, url), connect(t, url)
	for kind, opts := range map[string][]locker.Option{"exclusive": nil, "shared": {locker.WithShared()}} {
		held := lock(t, a, "a", locker.WithTTL(long))
		got := waits(t, b, "a", opts...)
		queued(t, a, "a", 1)
		exec(t, admin, `SELECT pg_cancel_backend($1)`, query[int](t, admin, waitingPid))
		unlock(t, held)
		if err := <-got; err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if !query[bool](t, admin, `SELECT pg_try_advisory_lock(hashtextextended('a', 1)) AND pg_advisory_unlock(hashtextextended('a', 1))`) {
			t.Errorf("%s: its turn is still taken", kind)
		}
	}
}

// Goal: a reader does not come before a writer that waits, where its process reads already,
// and where the writer has its turn and is just being asked to wait on. Method: both by hand.
func TestReaderDoesNotComeBeforeAWriterThatWaits(t *testing.T) {
	url := database(t)
	l := newSession(t, url)
	tried := func(what string) {
		t.Helper()
		if _, err := l.TryLock(soon(t), "a", locker.WithShared(), locker.WithHolder("another")); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock by a reader, %s: %v", what, err)
		}
	}
	turn := begun(t, url)
	ask[bool](t, turn, `SELECT pg_advisory_xact_lock(hashtextextended('a', 1)) IS NOT NULL`)
	tried("where somebody has the turn")
	if err := turn.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	stays := lock(t, l, "a", locker.WithShared(), locker.WithTTL(long))
	writes := begun(t, url)
	got := make(chan error, 1)
	go func() {
		_, err := writes.Exec(soon(t), `SELECT pg_advisory_xact_lock(hashtextextended('a', 0))`)
		got <- err
	}()
	queued(t, l, "a", 1)
	tried("where a transaction waits")
	unlock(t, stays)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Goal: a reader whose statement fails leaves nothing behind, and takes nothing from the
// others of its connection.
func TestReaderWhoseStatementFailsLeavesTheOthersTheirLock(t *testing.T) {
	url := database(t)
	a, b, c := newSession(t, url), newSession(t, url), newSession(t, url)
	admin := connect(t, url)
	option := locker.WithShared()
	for _, beside := range []locker.Locker{nil, a, b} {
		var stays *locker.Lock
		if beside != nil {
			stays = lock(t, beside, "a", option, locker.WithTTL(long))
		}
		exec(t, admin, `ALTER SEQUENCE lockstile_token RENAME TO missing`)
		if _, err := a.TryLock(soon(t), "a", option, locker.WithHolder("another"), locker.WithTTL(long)); err == nil || !strings.Contains(err.Error(), "lockstile_token") {
			t.Errorf("TryLock without the sequence: %v", err)
		}
		exec(t, admin, `ALTER SEQUENCE missing RENAME TO lockstile_token`)
		if beside != nil {
			if _, err := c.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("TryLock by a writer: %v", err)
			}
			if err := stays.Renew(soon(t)); err != nil {
				t.Errorf("the reader that has the lock: %v", err)
			}
			unlock(t, stays)
		}
		unlock(t, lock(t, c, "a"))
		unlock(t, lock(t, c, "a", option))
	}
}

// Goal: a writer that waits for a long time has a turn, and a reader that comes later
// waits behind it. Method: short stretches.
func TestWriterThatIsAskedToWaitOnKeepsItsTurn(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b, c := newSession(t, url), newSession(t, url), newSession(t, url)
	postgres.Stretch(b, time.Second)
	admin := connect(t, url)
	reader := lock(t, a, "a", locker.WithShared(), locker.WithTTL(long))
	got := make(chan error, 1)
	go func() { got <- passes(soon(t), b, "a", locker.WithTTL(long)) }()
	queued(t, a, "a", 1)
	eventually(t, func() string {
		if !query[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'
			AND (classid::bigint << 32) | objid::bigint = hashtextextended('a', 1) AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`) {
			return "the writer has not begun again, with a turn"
		}
		return ""
	})
	late := make(chan uint64, 1)
	go func() {
		held, err := c.Lock(soon(t), "a", locker.WithShared(), locker.WithTTL(long))
		if err != nil {
			t.Error(err)
			late <- 0
			return
		}
		late <- uint64(held.SharedToken())
		_ = held.Unlock(context.Background())
	}()
	queued(t, a, "a", 2)
	const asked = `SELECT coalesce(min(query_start)::text, '') FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'
		AND pid IN (SELECT pid FROM pg_locks WHERE mode = 'ExclusiveLock' AND NOT granted)`
	for range 2 {
		before := query[string](t, admin, asked)
		eventually(t, func() string {
			if now := query[string](t, admin, asked); before != "" && now != "" && now != before {
				return ""
			}
			if before == "" {
				before = query[string](t, admin, asked)
			}
			return "it has not been asked to wait on"
		})
	}
	if _, err := c.TryLock(soon(t), "a", locker.WithShared()); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock by a reader while a writer waits: %v", err)
	}
	select {
	case number := <-late:
		t.Errorf("a reader that came after a writer was served before it, with number %d", number)
		late <- number
	default:
	}
	unlock(t, reader)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if <-late == 0 {
		t.Error("the reader behind was not served")
	}
}
