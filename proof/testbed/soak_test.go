package testbed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

// soon are flaws that a soak finds within its first rounds. The others take longer.
var soon = []string{"waits for nobody", "fixed value", "tokens are all one", "a writer does not see readers", "the token of a slot is its number", twoResume}

// twoResume is a flaw that no scenario finds: in a soak two may resume one lock at once.
const twoResume = "a handle is good for all"

// Method: two soaks at once of a minute each, for each flaw. The seeds are always the same ones.
// So what is drawn does not depend on luck, but how it goes does.
func TestASoakFindsEveryFlawWithinAMinute(t *testing.T) {
	names := []string{twoResume}
	for _, f := range slices.Concat(flaws, hangs) {
		names = append(names, f.flaw)
	}
	for _, flaw := range names {
		if !full() && !slices.Contains(soon, flaw) {
			continue
		}
		t.Run(flaw, func(t *testing.T) {
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
					matrix.Soak(ctx, set, []matrix.Subject{testbed.Specimen(flaw)}, matrix.Soaking{Seed: 1 + 100*seed, For: time.Minute})
				})
			}
			if both.Wait(); ctx.Err() == nil {
				t.Error("not found")
			}
		})
	}
}

// soaked is what a soak of a specimen came to. It is done again, twice at most, if a round showed
// nothing and none shows anything wrong: a busy machine may have hindered a holder.
func soaked(t *testing.T, flaw string, how matrix.Soaking) (s matrix.Soaked, m *matrix.Matrix) {
	subjects := []matrix.Subject{testbed.Specimen(flaw)}
	for range 3 {
		all := matrix.Soak(t.Context(), settings(t), subjects, how)
		s, m = all[0], matrix.SoakMatrix(subjects, all)
		if len(m.FalseClaims()) > 0 || len(m.NotPlayed()) == 0 {
			break
		}
	}
	return s, m
}

func TestASoakFindsNothingWrongWithASpecimenThatHasNoFlaw(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for seed := uint64(1); time.Since(began) < 20*time.Second; seed++ {
		_, m := soaked(t, "", matrix.Soaking{Seed: seed}) // one round
		for _, c := range m.Cells {
			if c.Verdict != matrix.Kept && c.Verdict != matrix.Fenced && c.Verdict != matrix.Unavailable {
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
			s, m := soaked(t, flaw, matrix.Soaking{Seed: 1, For: 15 * time.Second, Crowd: 12})
			found := ""
			for _, c := range append(m.FalseClaims(), m.NotPlayed()...) {
				found += c.Scenario
			}
			if found != want || s.Locks < 10 || s.Faults < 5 || s.Before.Entries == 0 {
				t.Errorf("found %q, not %q; %d locks, %d faults, and the store held %v, then %v", found, want, s.Locks, s.Faults, *s.Before, *s.After)
			}
		})
	}
}
