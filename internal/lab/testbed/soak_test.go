package testbed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker/conformance/matrix"
	"github.com/lockstile/locker/internal/lab/testbed"
)

// soon are flaws that a soak finds within its first rounds. The others take longer.
var soon = []string{"waits for nobody", "fixed value", "tokens are all one", "a writer does not see readers", "the token of a slot is its number"}

// Method: two soaks at once of a minute each, for each flaw. The seeds are always the same ones.
// So what is drawn does not depend on luck, but how it goes does.
func TestASoakFindsEveryFlawWithinAMinute(t *testing.T) {
	for _, f := range slices.Concat(flaws, hangs) {
		if !full() && !slices.Contains(soon, f.flaw) {
			continue
		}
		t.Run(f.flaw, func(t *testing.T) {
			t.Parallel()
			ctx, found := context.WithCancel(t.Context())
			defer found()
			set := settings(t)
			set.Done = func(c matrix.Cell) {
				if c.Verdict == matrix.FalseClaim {
					t.Logf("%s: %s", c.Scenario, c.Why)
					found()
				}
			}
			var both sync.WaitGroup
			for seed := range uint64(2) {
				both.Go(func() {
					matrix.Soak(ctx, set, []matrix.Subject{testbed.Specimen(f.flaw)}, matrix.Soaking{Seed: 1 + 100*seed, For: time.Minute})
				})
			}
			if both.Wait(); ctx.Err() == nil {
				t.Error("not found")
			}
		})
	}
}

func TestASoakFindsNothingWrongWithASpecimenThatHasNoFlaw(t *testing.T) {
	t.Parallel()
	for _, s := range matrix.Soak(t.Context(), settings(t), []matrix.Subject{testbed.Specimen("")}, matrix.Soaking{Seed: 1, For: 20 * time.Second}) {
		for _, c := range s.Kept {
			if c.Verdict != matrix.Kept && c.Verdict != matrix.BrokenFenced && c.Verdict != matrix.Unavailable {
				t.Errorf("%s: %s (%s)\n%s", c.Scenario, c.Verdict, c.Why, c.History.Text())
			}
		}
	}
}

// Goal: a crowd finds two holders at once, and nothing wrong with a lock that has no flaw.
func TestACrowdFindsSecondHoldersAndNothingElse(t *testing.T) {
	for flaw, want := range map[string]string{"": "", "waits for nobody": "seed 1"} {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			how := matrix.Soaking{Seed: 1, For: 15 * time.Second, Crowd: 12}
			s := matrix.Soak(t.Context(), settings(t), []matrix.Subject{testbed.Specimen(flaw)}, how)[0]
			found := ""
			for _, c := range s.Kept {
				if c.Verdict == matrix.NotPlayed || c.Verdict == matrix.FalseClaim {
					found += c.Scenario
				}
			}
			if found != want || s.Locks < 10 || s.Faults < 5 || s.Before.Entries == 0 {
				t.Errorf("found %q, not %q; %d locks, %d faults, and the store held %v, then %v", found, want, s.Locks, s.Faults, *s.Before, *s.After)
			}
		})
	}
}
