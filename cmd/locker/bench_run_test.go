//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/lockertest"
	"github.com/lockstile/locker/open"
)

// raceForOneName is of two goroutines, each with a client on a directory, that
// hold their name for longer than the test lasts.
func raceForOneName(t *testing.T, dirs ...string) *race {
	t.Helper()
	var clients []open.Backend
	for _, dir := range dirs {
		b, err := open.URL(t.Context(), "local:"+dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		clients = append(clients, b)
	}
	w := workload{goroutines: 2, clients: len(clients), oneName: true, hold: time.Hour}
	return (&benchCommand{ttl: locker.DefaultTTL, time: time.Hour}).newRace(w, clients, benchNames(2))
}

func TestBenchThatIsCutShortWhileItHoldsAndWaitsLeavesNoLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := raceForOneName(t, dir, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := r.run(ctx)
		ended <- err
	}()
	waitFor(t, "one that holds and one that waits", func() bool {
		info, err := r.clients[0].Inspect(t.Context(), r.names[0].name)
		return err == nil && info.Held && info.Waiters == 1
	})
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
	for _, c := range r.clients {
		info, err := c.Inspect(t.Context(), r.names[0].name)
		if err != nil || info.Held || info.Waiters != 0 || info.Token == 0 {
			t.Errorf("%+v, %v", info, err)
		}
	}
}

// Two directories are two stores, which do not exclude each other.
func TestBenchOfLocksThatDoNotExcludeIsAnError(t *testing.T) {
	t.Parallel()
	r := raceForOneName(t, t.TempDir(), t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := r.run(ctx)
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "two holders at once") {
		t.Errorf("the error is %v", err)
	}
	for _, c := range r.clients {
		if info, err := c.Inspect(t.Context(), r.names[0].name); err != nil || info.Held {
			t.Errorf("%+v, %v", info, err)
		}
	}
}

func TestBenchReportsABrokenPromiseBeforeAnyOtherError(t *testing.T) {
	t.Parallel()
	for _, order := range [][]error{{errBroken, locker.ErrUnavailable}, {locker.ErrUnavailable, errBroken}} {
		r := race{end: func(error) {}}
		for _, err := range order {
			r.fails(err)
		}
		if !errors.Is(r.err, errBroken) {
			t.Errorf("%v: %v", order, r.err)
		}
	}
}

// The signal came before there was anything to measure.
func TestBenchThatIsCutShortWhileItConnectsIsNoError(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	srv.Pause()
	defer srv.Resume()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &benchCommand{backend: &backend{named: "redis://" + srv.Addr()}, clients: 1}
	if err := c.measure(ctx, new(benchReport)); err != nil {
		t.Error(err)
	}
}

// A store that no longer answers must not pass for one with a taken lock.
func TestBenchTakesOnlyAWaitThatWasGivenUpForNoError(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	taken := fmt.Errorf("%w: %w", locker.ErrTaken, context.Canceled)
	if err := unlessGivenUp(over, taken); err != nil {
		t.Error(err)
	}
	if err := unlessGivenUp(t.Context(), taken); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("nobody was told to give up: %v", err)
	}
	for _, want := range []error{locker.ErrUnavailable, locker.ErrOutcomeUnknown} {
		if err := unlessGivenUp(over, fmt.Errorf("%w: %w", want, context.Canceled)); !errors.Is(err, want) {
			t.Errorf("%v instead of %v", err, want)
		}
	}
}

// Somebody else has the name, and nobody gives it back.
func TestBenchGivesUpAWaitThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lockertest.New()
		r := (&benchCommand{ttl: locker.DefaultTTL, time: time.Second}).newRace(workload{goroutines: 2, clients: 1, oneName: true}, []open.Backend{store}, benchNames(2))
		store.Take(r.names[0].name)
		began := time.Now()
		if _, err := r.run(t.Context()); err != nil || time.Since(began) < 5*time.Second || time.Since(began) > 6*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestBenchOfNoLocksHasFiguresAllTheSame(t *testing.T) {
	t.Parallel()
	for _, w := range []workload{{goroutines: 1, clients: 1}, {goroutines: 2, clients: 1, oneName: true, hold: time.Second}} {
		r := (&benchCommand{time: time.Second}).newRace(w, nil, nil)
		report := benchReport{Workloads: []figures{r.figures(2 * time.Second)}}
		if _, err := json.Marshal(report); err != nil {
			t.Error(err) // JSON has no word for what is not a number
		}
		if text := report.text(); strings.Contains(text, "NaN") || !strings.Contains(text, "  2s        0 ") {
			t.Errorf("the table is\n%s", text)
		}
	}
}

func TestBenchSaysWhatWasCutShort(t *testing.T) {
	t.Parallel()
	changed := 3
	one := figures{Goroutines: 4, Clients: 2, Measured: 1.5, Locks: 5, Rate: 3.3, Jain: 0.756, HandOverMedian: 0.0012345, HandOverP99: 12.345, ChangedHands: &changed}
	held := one
	held.Hold = 0.001
	for _, c := range []struct {
		report benchReport
		want   string
	}{
		{benchReport{CutShort: true}, "cut short: nothing was measured\nchecked: 0 locks, "},
		{benchReport{CutShort: true, Checked: 7, Workloads: []figures{one}}, "1.5s|3|0s|1.23ms|12.3s|0.76|3 of 5\n\ncut short: MEASURED says how much of each was, and what is missing was not\nchecked: 7 locks, "},
		{benchReport{Workloads: []figures{held}}, "4 goroutines, 2 clients|1.5s|3|1ms|1.23ms|12.3s|0.76|3 of 5\n\nchecked: 0 locks, "},
	} {
		text := regexp.MustCompile(`  +`).ReplaceAllString(c.report.text(), "|")
		if i := strings.Index(text, c.want); i < 0 || i > 0 && len(c.report.Workloads) == 0 {
			t.Errorf("%q is not in\n%s", c.want, text)
		}
	}
}

func TestTimesAreShownInThreeDigits(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{0: "-", -1: "-", 7e-9: "7ns", 123e-9: "123ns", 1234e-9: "1.23µs", 0.0123456: "12.3ms", 0.999: "999ms", 1: "1s", 65.4321: "1m5.4s", 600: "10m0s"} {
		if got := short(seconds); got != want {
			t.Errorf("%v s are %s, want %s", seconds, got, want)
		}
	}
}
