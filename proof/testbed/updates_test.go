package testbed_test

import (
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
			var unguarded, guarded bool
			if h := cell.History; h != nil {
				lost := h.Updates.Lost()
				unguarded, guarded = len(lost.Unguarded) > 0, len(lost.Guarded) > 0
			}
			if cell.Verdict != c.want || !strings.Contains(cell.Why, c.why) || unguarded != c.unguarded || guarded != c.guarded {
				t.Errorf("%s (%s), not %s\n%s", cell.Verdict, cell.Why, c.want, cell.History.Text())
			}
		})
	}
}
