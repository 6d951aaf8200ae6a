package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/specimen"
	"github.com/lockstile/locker/internal/testserver"
)

// bare is a backend with nothing but the three methods.
type bare struct{ locker.Locker }

// A backend author must see what was not checked, and why.
func TestClauseWithoutItsMeansIsSkippedAndSaysWhatIsMissing(t *testing.T) {
	srv := testserver.Redis(t)
	h := Harness{TTL: 300 * time.Millisecond, New: func(t testing.TB) Client {
		l, end := specimen.New(srv.Addr(), "")
		t.Cleanup(end)
		return Through(bare{l})
	}}
	want := map[string]string{
		"order": "Inspector", "connections": "network", "inspect": "Inspector", "break": "Breaker", "closed": "Close",
		"unlock-after-break": "Breaker", "tokens-over-break": "Breaker",
		"dead-waiter": "network", "late-unlock": "network", "late-unlock-reply": "network", "late-renewal": "network",
		"lost-unlock-reply": "network", "silence": "network", "slow-reply": "network", "min-validity": "network",
		"lost-reply": "network", "lost-reply-while-waiting": "network", "dead-while-locking": "network",
		"late-delivery": "network", "late-after-clean-up": "network", "silent-store": "network", "cut-while-waiting": "network",
	}
	for _, c := range Clauses() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Check(t, h)
			var skipped *Skipped
			switch missing, ok := want[c.Name]; {
			case !ok && err != nil:
				t.Errorf("it needs no more than a Locker: %v", err)
			case ok && (!errors.As(err, &skipped) || !strings.Contains(err.Error(), missing)):
				t.Errorf("got %v, want a skip that says that there is no %s", err, missing)
			}
		})
	}
}

func TestHarnessWithoutNewIsSkippedAndNotCalled(t *testing.T) {
	for _, c := range Clauses() {
		if err := c.Check(t, Harness{}); !isSkip(err) {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

func TestPanicOfABackendIsNotTakenForAClauseThatIsKept(t *testing.T) {
	defer func() {
		if got := recover(); got != "the backend's own" {
			t.Errorf("recovered %v", got)
		}
	}()
	err := Clauses()[0].Check(t, Harness{New: func(testing.TB) Client { panic("the backend's own") }})
	t.Errorf("Check returned %v", err)
}

func TestEveryClauseHasANameOfItsOwnAndAReason(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Clauses() {
		if seen[c.Name] || c.Name == "" || strings.ContainsAny(c.Name, " /") {
			t.Errorf("the name %q is taken, empty or unfit for a subtest", c.Name)
		}
		seen[c.Name] = true
		if !strings.HasSuffix(c.Why, ".") || strings.Count(c.Why, ". ") > 0 {
			t.Errorf("%s: the reason is one plain sentence, not %q", c.Name, c.Why)
		}
	}
}
