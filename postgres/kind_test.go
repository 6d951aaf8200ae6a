package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// attempts speaks for many processes, with the statements themselves.
type attempts struct {
	ask  func(value string, slots int, queue bool) (token int64, slot int)
	free func(value string, queued bool)
	list func() string // values that have the lock, or for which it is reserved ("?")
}

func byHand(t *testing.T, url string) attempts {
	t.Helper()
	newLocker(t, url, postgres.Options{})
	admin := connect(t, url)
	return attempts{
		func(value string, slots int, queue bool) (token int64, slot int) {
			t.Helper()
			if err := admin.QueryRow(soon(t), `SELECT _token, _slot FROM lockstile_acquire_3('a', $1, 600000, '', $2, '', 600000, -1, false, $3)`,
				value, queue, slots).Scan(&token, &slot); err != nil {
				t.Fatal(err)
			}
			return token, slot
		},
		func(value string, queued bool) {
			t.Helper()
			exec(t, admin, `SELECT lockstile_release_3('a', $1, $2, 0, 0)`, value, queued)
		},
		func() string {
			t.Helper()
			return query[string](t, admin, `SELECT coalesce(string_agg(value || CASE WHEN reserved THEN '?' ELSE '' END, ' ' ORDER BY value), '') FROM lockstile_lease`)
		},
	}
}

func (a attempts) want(t *testing.T, after, want string) {
	t.Helper()
	if got := a.list(); got != want {
		t.Errorf("after %s: %q, want %q", after, got, want)
	}
}

// Goal: readers that are neighbours in the queue go in together, and no further than the
// next writer, whatever it was that kept them waiting.
func TestReadersUpToTheNextWriterGoInTogether(t *testing.T) {
	for _, how := range []string{"release", "withdrawal"} {
		t.Run(how, func(t *testing.T) {
			a := byHand(t, database(t))
			first := map[string]int{"release": 0, "withdrawal": -1}[how]
			a.ask("0", first, false)
			waits := []struct {
				value string
				slots int
			}{{"1", -1}, {"2", -1}, {"3", 0}, {"4", -1}}
			if how == "withdrawal" { // a writer that waits for a reader
				a.ask("w", 0, true)
			}
			for _, w := range waits {
				if token, _ := a.ask(w.value, w.slots, true); token != 0 {
					t.Errorf("%s was answered %d", w.value, token)
				}
			}
			if how == "withdrawal" {
				a.free("w", true)
				a.want(t, "the writer left", "0 1? 2?")
				a.free("0", false)
			} else {
				a.free("0", false)
			}
			a.want(t, "the first release", "1? 2?")
			one, _ := a.ask("1", -1, true)
			two, _ := a.ask("2", -1, true)
			if one <= 0 || two <= one {
				t.Errorf("the readers have numbers %d and %d", one, two)
			}
			a.free("1", false)
			a.want(t, "a reader's release", "2")
			a.free("2", false)
			a.want(t, "the last reader's release", "3?")
			if three, _ := a.ask("3", 0, true); three <= two {
				t.Errorf("the writer behind number %d has token %d", two, three)
			}
			a.free("3", false)
			a.want(t, "the writer's release", "4?")
		})
	}
}

var _ = []any{context.Background, errors.New, fmt.Sprint, slices.Max[[]int], sync.NewCond, time.Now, locker.WithShared}

// Goal: a writer that waits for a long time keeps its turn, and a reader that comes later
// waits behind it. Method: its patience is that of its short TTL; it is asked to wait on
// several times.
func TestWriterThatIsAskedToWaitOnKeepsItsTurn(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b, c := newSession(t, url), newSession(t, url), newSession(t, url)
	admin := connect(t, url)
	reader := lock(t, a, "a", locker.WithShared(), locker.WithTTL(long))
	got := make(chan error, 1)
	go func() {
		held, err := b.Lock(soon(t), "a", locker.WithTTL(locker.MinTTL))
		if err == nil {
			err = held.Unlock(context.Background())
		}
		got <- err
	}()
	queued(t, a, "a", 1)
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
