package testbed_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

func TestASynchronousStandbyTakesOverWithEveryGrant(t *testing.T) {
	t.Parallel()
	judged(t, subject(t, "postgres+sync"), "failover", matrix.Kept, matrix.Unavailable)
}

// SyncStandby promises nothing where a standby takes over that is not the
// synchronous one.
func TestPromotingAnAsynchronousStandbyMakesSyncStandbyAFalseClaim(t *testing.T) {
	t.Parallel()
	disproved(t, testbed.PostgresPromotingAnother(), "failover")
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
	c := committed(t, subject(t, "postgres tx"), "pause before the write")
	if c.Verdict != matrix.Kept && c.Verdict != matrix.Unavailable {
		t.Fatalf("%s (%s)\n%s", c.Verdict, c.Why, c.History.Text())
	}
	var ended, good int
	for _, s := range c.History.Spans {
		if s.Void {
			ended++
		} else {
			good++
		}
	}
	if ended != 1 || good != 1 || len(c.History.Writes) != 2 {
		t.Errorf("%d transactions were ended, %d committed, with %d writes\n%s", ended, good, len(c.History.Writes), c.History.Text())
	}
}

func TestEveryTransactionOfAHerdIsCommittedInTurn(t *testing.T) {
	t.Parallel()
	c := played(t, subject(t, "postgres tx"), "herd")
	for i := 1; i <= 3 && c.Verdict == matrix.Kept && len(c.History.Writes) < 16; i++ { // a stall ends a transaction
		c = longer(t, subject(t, "postgres tx"), "herd", i)
	}
	if n := len(c.History.Writes); c.Verdict != matrix.Kept || n < 16 {
		t.Errorf("%s (%s), %d writes\n%s", c.Verdict, c.Why, n, c.History.Text())
	}
}

func TestWritingOutsideOfTheTransactionIsAFalseClaim(t *testing.T) {
	t.Parallel()
	c := committed(t, testbed.PostgresWritingAside(), "stale write comes first")
	if c.Verdict != matrix.FalseClaim {
		t.Errorf("%s (%s)\n%s", c.Verdict, c.Why, c.History.Text())
	}
}

// committed plays a scenario on transactions, with a longer TTL where a stall has ended
// all of them: then nothing was claimed, and there is nothing to be stale beside.
func committed(t *testing.T, sub matrix.Subject, scenario string) matrix.Cell {
	t.Helper()
	c := played(t, sub, scenario)
	for i := 1; i <= 3 && nothingCommitted(c); i++ {
		c = longer(t, sub, scenario, i)
	}
	return c
}

func nothingCommitted(c matrix.Cell) bool {
	for _, s := range c.History.Spans {
		if !s.Void {
			return false
		}
	}
	return true
}

// Goal: a session that has been idle for too long, by a clock that has stepped, ends with the step, and its holder hears of
// it before anybody else comes. Method: the step comes so long after the holder's last statement that none of the session's
// own timers is about to fire.
func TestASessionLooksAtTheClockThatHasStepped(t *testing.T) {
	if testing.Short() {
		t.Skip("it plays a scenario: make proof runs it")
	}
	t.Parallel()
	late, start := subject(t, "postgres session"), subject(t, "postgres session").Start
	late.Start = func(lab *matrix.Lab) (*matrix.System, error) {
		sys, err := start(lab)
		if err == nil && sys.StepClock != nil {
			step := sys.StepClock
			sys.StepClock = func(d time.Duration) error {
				time.Sleep(1300 * time.Millisecond) // before the first renewal
				return step(d)
			}
		}
		return sys, err
	}
	c := played(t, late, "clock steps forward")
	if c.Verdict != matrix.Kept || !strings.Contains(c.History.Text(), "idle-session timeout") {
		t.Errorf("%s (%s), and the session did not end before, or does not say so\n%s", c.Verdict, c.Why, c.History.Text())
	}
}
