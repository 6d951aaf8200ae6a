package peers_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/bench/peers"
	"github.com/lockstile/locker/proof/matrix"
)

func TestMain(m *testing.M) {
	matrix.BecomePeerWorker(peers.Open)
	os.Exit(m.Run())
}

func play(t *testing.T, subjects []matrix.Subject, names ...string) *matrix.Matrix {
	t.Helper()
	scenarios := slices.DeleteFunc(matrix.Scenarios(), func(s matrix.Scenario) bool { return !slices.Contains(names, s.Name) })
	if len(scenarios) != len(names) {
		t.Fatalf("of %q there are %d scenarios", names, len(scenarios))
	}
	settings := matrix.Settings{
		Start: testserver.StartChild,
		Done:  func(c matrix.Cell) { t.Logf("%-30s %-12s %-15s %s", c.Scenario, c.Subject, c.Verdict, c.Why) },
	}
	m := matrix.Run(t.Context(), settings, subjects, scenarios)
	for range 2 { // other libraries have their own time-outs, which a machine that stalls may exceed
		stalled := m.NotPlayed()
		again := slices.DeleteFunc(slices.Clone(subjects), func(s matrix.Subject) bool {
			return !slices.ContainsFunc(stalled, func(c matrix.Cell) bool { return c.Subject == s.Name })
		})
		if len(again) == 0 {
			break
		}
		m.Cells = slices.DeleteFunc(m.Cells, func(c matrix.Cell) bool {
			return slices.ContainsFunc(again, func(s matrix.Subject) bool { return s.Name == c.Subject })
		})
		m.Cells = append(m.Cells, matrix.Run(t.Context(), settings, again, scenarios).Cells...)
	}
	return m
}

// subjects are the subjects that differ in the scenarios of these tests.
func subjects() []matrix.Subject {
	return slices.DeleteFunc(peers.Subjects(), func(s matrix.Subject) bool {
		return strings.HasSuffix(s.Name, "+replica") || strings.HasSuffix(s.Name, "+cluster") || s.Name == "Mutex, trusting"
	})
}

// After a pause, a holder of any library makes a stale write. Only a token keeps it out of
// the storage.
func TestAStaleWriteGetsInWhereThereIsNoToken(t *testing.T) {
	all := subjects()
	m := play(t, all, "pause before the write", "stale write comes first")
	for _, c := range m.Cells {
		i := slices.IndexFunc(all, func(s matrix.Subject) bool { return s.Name == c.Subject })
		want := matrix.Fenced
		if all[i].Tokenless() {
			want = matrix.Broken
		}
		if c.Verdict == matrix.Skipped {
			t.Logf("%s: skipped: %s", c.Subject, c.Why)
			continue
		}
		if c.Verdict != want || c.Stale == 0 || (c.Passed > 0) != all[i].Tokenless() {
			t.Errorf("%s, %s: %s (%s), %d stale writes, %d passed; want %q\n%s",
				c.Subject, c.Scenario, c.Verdict, c.Why, c.Stale, c.Passed, want, c.History.Text())
		}
	}
}

// Scenarios that have nothing to do with pauses break nobody's lock.
func TestEverybodySurvivesDeadAndFormerHoldersAndStrangers(t *testing.T) {
	m := play(t, subjects(), "dead holder", "unlock by a former holder", "a stranger's release")
	for _, c := range m.Cells {
		switch c.Verdict {
		case matrix.Kept, matrix.Unavailable, matrix.Skipped:
		default:
			t.Errorf("%s, %s: %s (%s)\n%s", c.Subject, c.Scenario, c.Verdict, c.Why, c.History.Text())
		}
	}
}

// A caller who has given up may have been granted the lock all the same. If only the end
// of its lease frees it, others wait that long, and not for ever.
func TestALostReplyCostsALeaseAtMost(t *testing.T) {
	for _, c := range play(t, subjects(), "lost reply to a lock").Cells {
		switch c.Verdict {
		case matrix.Kept, matrix.Unavailable, matrix.Skipped:
		default:
			t.Errorf("%s: %s (%s)\n%s", c.Subject, c.Verdict, c.Why, c.History.Text())
		}
	}
}
