package register_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/registertest"
)

// trip is how long a request takes to a distant store, and the answer back.
const trip = 500 * time.Microsecond

type distant struct {
	register.Store
	trip time.Duration
}

func (d distant) Get(ctx context.Context, name string) (register.Entry, error) {
	time.Sleep(d.trip)
	defer time.Sleep(d.trip)
	return d.Store.Get(ctx, name)
}

func (d distant) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	time.Sleep(d.trip)
	defer time.Sleep(d.trip)
	return d.Store.Swap(ctx, name, version, record)
}

type distantWatch struct {
	register.Watcher
	trip time.Duration
}

func (d distantWatch) Watch(ctx context.Context, name string, tell func(register.Entry)) error {
	return d.Watcher.Watch(ctx, name, func(e register.Entry) {
		time.Sleep(d.trip)
		tell(e)
	})
}

// atADistance returns m as one that is a trip away.
func atADistance(s *script, m register.Watcher, trip time.Duration) register.Store {
	if m == nil {
		return distant{s, trip}
	}
	return struct {
		distant
		distantWatch
	}{distant{s, trip}, distantWatch{m, trip}}
}

// Goal: what a lock and its unlock cost on a store that is half a millisecond away, on virtual time. docs/BENCHMARKS.md has the figures of one run.
func TestCostsAtADistance(t *testing.T) {
	for _, c := range []struct {
		what             string
		processes        int
		watches, handsOn bool
		most             [3]float64 // Gets, Swaps, and those that were refused
	}{
		{what: "the same process again", processes: 1, most: [3]float64{0, 2, 0}},
		{what: "two processes in turn", processes: 2, most: [3]float64{1, 2.1, 0.1}},
		{what: "hand-over, with Watch", processes: 2, watches: true, handsOn: true, most: [3]float64{1, 5, 2}},
		{what: "hand-over, polling", processes: 2, handsOn: true, most: [3]float64{6, 6, 2}},
		{what: "8 contend, with Watch", processes: 8, watches: true, most: [3]float64{6, 8, 4}},
		{what: "8 contend, polling", processes: 8, most: [3]float64{10, 6, 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := new(registertest.Memory)
			s := &script{Store: m}
			var w register.Watcher
			if c.watches {
				w = m
			}
			store := atADistance(s, w, trip)
			all := make([]*register.Locker, c.processes)
			for i := range all {
				all[i] = process(t, store, aged)
				unlock(t, lock(t, all[i], "a"))
			}
			s.counts()
			const locks = 200
			began := time.Now()
			switch {
			case c.handsOn: // each waits while the other has the lock
				held := lock(t, all[0], "a")
				for i := range locks {
					got := make(chan *locker.Lock)
					go func() { got <- lock(t, all[(i+1)%2], "a") }()
					time.Sleep(10 * trip)
					unlock(t, held)
					held = <-got
				}
				unlock(t, held)
			case c.processes > 2:
				var wg sync.WaitGroup
				for _, l := range all {
					wg.Go(func() {
						for range locks / c.processes {
							unlock(t, lock(t, l, "a"))
						}
					})
				}
				wg.Wait()
			default:
				for i := range locks {
					unlock(t, lock(t, all[i%c.processes], "a"))
				}
			}
			took := time.Since(began)
			gets, swaps, refused := s.counts()
			each := [3]float64{float64(gets) / locks, float64(swaps) / locks, float64(refused) / locks}
			t.Logf("%-24s Get %.2f, Swap %.2f, refused %.2f, %v", c.what, each[0], each[1], each[2], (took / locks).Round(10*time.Microsecond))
			for i, what := range []string{"Gets", "Swaps", "Swaps that are refused"} {
				if each[i] > c.most[i] {
					t.Errorf("%s: %.2f %s, it may be %.2f", c.what, each[i], what, c.most[i])
				}
			}
		})
	}
}

// Processes lock, do next to nothing, and unlock, again and again: the writes of one follow one another so closely that nobody else, who has to read
// first, would ever write. Each gets the lock, also one that is five times as far from the store.
func TestWhoLocksAgainAndAgainLetsOthersIn(t *testing.T) {
	for what, most := range map[string]struct {
		trips []time.Duration
		wait  time.Duration
	}{
		"four":                  {[]time.Duration{trip, trip, trip, trip}, 5 * time.Second},
		"one, and one far away": {[]time.Duration{trip, 5 * trip}, 25 * time.Second},
	} {
		for _, watches := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				m := new(registertest.Memory)
				var w register.Watcher
				if watches {
					w = m
				}
				const d = 30 * time.Second
				end := time.Now().Add(d)
				var all sync.WaitGroup
				locks, longest := make([]int, len(most.trips)), make([]time.Duration, len(most.trips))
				for i, trip := range most.trips {
					l := process(t, atADistance(&script{Store: m}, w, trip), aged)
					all.Go(func() {
						for time.Now().Before(end) {
							began := time.Now()
							got := lock(t, l, "a")
							longest[i] = max(longest[i], time.Since(began))
							locks[i]++
							unlock(t, got)
						}
					})
				}
				all.Wait()
				t.Logf("%s, watches %v: %v locks in %v, after %v at most", what, watches, locks, d, longest)
				if longest := slices.Max(longest); longest > most.wait {
					t.Errorf("%s: somebody waited for %v", what, longest)
				}
			})
		}
	}
}
