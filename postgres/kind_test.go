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
