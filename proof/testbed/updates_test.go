package testbed_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

// Goal: under pauses a lease loses updates, and a guard prevents that. A lock that ends with
// its holder alone, or with the transaction that writes, needs none. A lock that does not
// exclude is found, and so is a guard that the lock's tokens make blind.
func TestUpdatesAreLostWithoutTheGuardAndNeverWithIt(t *testing.T) {
	for _, c := range []struct {
		subject            matrix.Subject
		want               matrix.Verdict
		why                string
		unguarded, guarded bool // lost
	}{
		{subject(t, "singlenode"), matrix.Fenced, "the guard refused", true, false},
		{subject(t, "local"), matrix.Kept, "", false, false},
		{subject(t, "postgres tx"), matrix.Kept, "", false, false},
		{testbed.PostgresWritingAside(), matrix.FalseClaim, "", true, false},
		{testbed.Specimen("waits for nobody"), matrix.FalseClaim, "before anybody was paused", true, false},
		{testbed.Specimen("tokens are all one"), matrix.FalseClaim, "the guard let an update be lost", true, true},
	} {
		t.Run(c.subject.Name, func(t *testing.T) {
			t.Parallel()
			const scenario = "lost updates"
			cell := played(t, c.subject, scenario)
			for i := 1; i <= 3 && cell.Verdict != c.want && cell.Verdict != matrix.FalseClaim; i++ { // a stall can hide a flaw
				cell = longer(t, c.subject, scenario, i)
			}
			u := new(matrix.Updates)
			if cell.History != nil && cell.History.Updates != nil {
				u = cell.History.Updates
			}
			if cell.Verdict != c.want || !strings.Contains(cell.Why, c.why) || lost(u.Confirmed.Unguarded, u.Final.Unguarded) != c.unguarded || lost(u.Confirmed.Guarded, u.Final.Guarded) != c.guarded {
				t.Errorf("%s (%s), not %s\n%s", cell.Verdict, cell.Why, c.want, cell.History.Text())
			}
		})
	}
}

// lost reports whether an element was confirmed and is not there in the end.
func lost(confirmed, final []int) bool {
	return slices.ContainsFunc(confirmed, func(element int) bool { return !slices.Contains(final, element) })
}
