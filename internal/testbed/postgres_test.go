package testbed_test

import (
	"testing"

	"github.com/lockstile/locker/conformance/matrix"
	"github.com/lockstile/locker/internal/testbed"
	"github.com/lockstile/locker/internal/testserver"
)

func TestASynchronousStandbyTakesOverWithEveryGrant(t *testing.T) {
	t.Parallel()
	m := matrix.Run(t.Context(), settings(t), []matrix.Subject{subject(t, "postgres+sync")}, theScenario(t, "failover"))
	if got := m.Cells[0]; got.Verdict != matrix.Kept && got.Verdict != matrix.Unavailable && got.Verdict != matrix.Skipped {
		t.Errorf("%s (%s)\n%s", got.Verdict, got.Why, got.History.Tale())
	}
}

// SyncStandby promises nothing where a standby takes over that is not the
// synchronous one.
func TestPromotingAnAsynchronousStandbyMakesSyncStandbyAFalseClaim(t *testing.T) {
	t.Parallel()
	m := matrix.Run(t.Context(), settings(t), []matrix.Subject{testbed.PostgresPromotingAnother()}, theScenario(t, "failover"))
	if got := m.Cells[0]; got.Verdict != matrix.FalseClaim && got.Verdict != matrix.Skipped {
		t.Errorf("%s (%s), not a false claim\n%s", got.Verdict, got.Why, got.History.Tale())
	}
}

func TestPostgresWithASynchronousStandbyDeclaresWhatTheMatrixSays(t *testing.T) {
	url := testserver.PostgresURL("127.0.0.1:1", "postgres") + "&sync_standby=true"
	l, err := testbed.Open(t.Context(), url) // it connects when it is used
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Guarantees(), subject(t, "postgres+sync").Guarantees; got != want {
		t.Errorf("declared are %+v, the matrix says %+v", got, want)
	}
}

// Goal: a holder whose transaction the server has ended cannot write any more,
// whatever it believes.
func TestAStaleHolderOfATransactionCommitsNothing(t *testing.T) {
	t.Parallel()
	m := matrix.Run(t.Context(), settings(t), []matrix.Subject{subject(t, "postgres tx")}, theScenario(t, "pause before the write"))
	c := m.Cells[0]
	if c.Verdict == matrix.Skipped {
		t.Skip(c.Why)
	}
	if c.Verdict != matrix.Kept && c.Verdict != matrix.Unavailable {
		t.Fatalf("%s (%s)\n%s", c.Verdict, c.Why, c.History.Tale())
	}
	var ended, committed int
	for _, s := range c.History.Spans {
		if s.Void {
			ended++
		} else {
			committed++
		}
	}
	if ended != 1 || committed != 1 || len(c.History.Writes) != 2 {
		t.Errorf("%d transactions were ended, %d committed, with %d writes\n%s", ended, committed, len(c.History.Writes), c.History.Tale())
	}
}

func TestEveryTransactionOfAHerdIsCommittedInTurn(t *testing.T) {
	t.Parallel()
	m := matrix.Run(t.Context(), settings(t), []matrix.Subject{subject(t, "postgres tx")}, theScenario(t, "herd"))
	c := m.Cells[0]
	if c.Verdict == matrix.Skipped {
		t.Skip(c.Why)
	}
	if n := len(c.History.Writes); c.Verdict != matrix.Kept || n < 16 {
		t.Errorf("%s (%s), %d writes\n%s", c.Verdict, c.Why, n, c.History.Tale())
	}
}

func TestWritingOutsideOfTheTransactionIsAFalseClaim(t *testing.T) {
	t.Parallel()
	m := matrix.Run(t.Context(), settings(t), []matrix.Subject{testbed.PostgresWritingAside()}, theScenario(t, "stale write comes first"))
	if got := m.Cells[0]; got.Verdict != matrix.FalseClaim && got.Verdict != matrix.Skipped {
		t.Errorf("%s (%s), not a false claim\n%s", got.Verdict, got.Why, got.History.Tale())
	}
}
