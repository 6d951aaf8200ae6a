//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lab/testserver"
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
	c := &benchCommand{backend: backend{named: "redis://" + srv.Addr()}, clients: 1}
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
