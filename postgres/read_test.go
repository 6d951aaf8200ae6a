package postgres_test

import (
	"errors"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

const reads = `SELECT (lockstile_acquire_5('a', $1, 600000, '', false, '', 0, 0, false, -1))._token`

// Goal: nobody waits for a reader that waits for the disk, but a writer does, and so does the
// same request sent again. Method: a transaction by hand is that reader, and commits when
// they wait.
func TestReaderOnItsWayToTheDiskKeepsWritersAloneWaiting(t *testing.T) {
	url := database(t)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	unlock(t, lock(t, b, "a"))
	tx := begun(t, url)
	number := ask[int64](t, tx, reads, "reader")
	if number <= 0 {
		t.Fatalf("a reader of a free name was answered %d", number)
	}
	other := lock(t, a, "a", locker.WithShared(), locker.WithTTL(long))
	writer, again := make(chan error, 1), make(chan int64, 1)
	go func() {
		_, err := b.TryLock(soon(t), "a")
		writer <- err
	}()
	go func() {
		var number int64
		if err := admin.QueryRow(soon(t), reads, "reader").Scan(&number); err != nil {
			t.Error(err)
		}
		again <- number
	}()
	eventually(t, func() string {
		select {
		case err := <-writer:
			t.Fatalf("the writer did not wait: %v", err)
		case number := <-again:
			t.Fatalf("the second request did not wait, and was answered %d", number)
		default:
		}
		if query[int](t, admin, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) < 2 {
			return "they do not wait"
		}
		return ""
	})
	if err := tx.Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-writer; !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock by a writer: %v", err)
	}
	if second := <-again; second != number {
		t.Errorf("number %d became %d when it was asked for again", number, second)
	}
	exec(t, admin, `SELECT lockstile_release_5('a', 'reader', false, 0, 0, true)`)
	unlock(t, other)
	unlock(t, lock(t, b, "a"))
}

// Goal: the release of a reader tells a writer that has just come. Method: the statement
// itself, which is for readers where nobody waits.
func TestReleaseOfAReaderLetsAWriterIn(t *testing.T) {
	url := database(t)
	a, admin := byHand(t, url), connect(t, url)
	a.ask("reader", -1, false)
	a.ask("writer", 0, true)
	if code := query[int](t, admin, `SELECT lockstile_release_5('a', 'reader', false, 0, 0, true)`); code != 0 {
		t.Errorf("the release was answered %d", code)
	}
	a.want(t, "the reader's release", "writer?")
	if code := query[int](t, admin, `SELECT lockstile_release_5('a', 'reader', false, 0, 0, true)`); code != -1 {
		t.Errorf("the release of what was not there was answered %d", code)
	}
}

// Goal: what was withdrawn stays refused, for readers too.
func TestReaderThatWasWithdrawnIsRefused(t *testing.T) {
	url := database(t)
	a, admin := byHand(t, url), connect(t, url)
	a.ask("granted", -1, false)
	for value, queued := range map[string]bool{"late": true, "granted": false} {
		exec(t, admin, `SELECT lockstile_release_5('a', $1, $2, 60000, 0, true)`, value, queued)
		if token, _ := a.ask(value, -1, true); token != -1 {
			t.Errorf("a reader that was withdrawn (%s) and arrives now was answered %d", value, token)
		}
	}
	a.want(t, "a late request", "")
}

// Goal: an answer of an unknown form, which may be a grant, leaves no lock behind. Method: the
// function grants, and another one answers with a slot that there is not.
func TestGrantThatNobodyUnderstandsIsWithdrawn(t *testing.T) {
	url := database(t)
	l, admin := newLocker(t, url, postgres.Options{}), connect(t, url)
	unlock(t, lock(t, l, "a")) // the schema is there
	exec(t, admin, `ALTER FUNCTION lockstile_acquire_5 RENAME TO granting`)
	exec(t, admin, `CREATE FUNCTION lockstile_acquire_5(_name text, _value text, _ttl bigint, _holder text, _queue boolean, _channel text,
		_patience bigint, INOUT _ticket bigint, _synced boolean, _slots integer DEFAULT 0, OUT _token bigint, OUT _slot integer, OUT _left bigint, OUT _ahead bigint)
		LANGUAGE sql AS $$ SELECT a._ticket, a._token, -7, a._left, a._ahead FROM granting($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) a $$`)
	if _, err := l.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrUnavailable) {
		t.Error(err)
	}
	if info, err := l.Inspect(soon(t), "a"); err != nil || info.Held {
		t.Errorf("it has left a lock: %+v, %v", info, err)
	}
}
