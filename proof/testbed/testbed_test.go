package testbed_test

import (
	"os"
	"slices"
	"testing"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

func TestMain(m *testing.M) {
	matrix.BecomeWorker(testbed.Open)
	os.Exit(m.Run())
}

func settings(t *testing.T) matrix.Settings {
	return matrix.Settings{
		Start: testserver.StartChild,
		Done: func(c matrix.Cell) {
			t.Logf("cell %-40s %-20s %-15s %s (overlap %v, waited %v)", c.Scenario, c.Subject, c.Verdict, c.Why, c.Overlap, c.Waited)
		},
	}
}

// played is the cell of one scenario on one subject, which is skipped where it
// cannot be played.
func played(t *testing.T, sub matrix.Subject, scenario string) matrix.Cell {
	t.Helper()
	c := matrix.Run(t.Context(), settings(t), []matrix.Subject{sub}, theScenario(t, scenario)).Cells[0]
	if c.Why == "no such kind" {
		t.Fatalf("%s declares no such kind of lock, so that nothing was played", sub.Name)
	}
	if c.Verdict == matrix.Skipped {
		t.Skip(c.Why)
	}
	return c
}

// judged plays a scenario on a subject and wants one of these verdicts.
func judged(t *testing.T, sub matrix.Subject, scenario string, want ...matrix.Verdict) {
	t.Helper()
	if c := played(t, sub, scenario); !slices.Contains(want, c.Verdict) {
		t.Errorf("%s (%s), not one of %q\n%s", c.Verdict, c.Why, want, c.History.Text())
	}
}

// The whole matrix takes minutes: "make compare" plays it, and this test where
// the environment asks for it.
func TestNoBackendClaimsMoreThanItKeeps(t *testing.T) {
	subjects, scenarios := testbed.Short()
	if full() {
		subjects, scenarios = testbed.Subjects(), matrix.Scenarios()
	}
	m := matrix.Run(t.Context(), settings(t), subjects, scenarios)
	bad := m.FalseClaims()
	for _, c := range m.NotPlayed() {
		for i := 1; i <= 2 && c.Verdict == matrix.NotPlayed; i++ {
			c = longer(t, named(subjects, c.Subject), c.Scenario, i)
		}
		if c.Verdict == matrix.NotPlayed || c.Verdict == matrix.FalseClaim {
			bad = append(bad, c)
		}
	}
	for _, c := range bad {
		t.Errorf("%s on %s: %s: %s\n%s", c.Scenario, c.Subject, c.Verdict, c.Why, c.History.Text())
	}
	for _, m := range m.Modest {
		t.Logf("modest: %+v", m)
	}
}
