package matrix

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

func TestAScenarioWithoutStepsIsNotPlayed(t *testing.T) {
	sub := Subject{Name: "it", Start: func(*Lab) (*System, error) { return &System{}, nil }}
	if c := Run(t.Context(), Settings{}, []Subject{sub}, []Scenario{{Name: "mine"}}).Cells[0]; c.Verdict != NotPlayed || c.Why == "" {
		t.Errorf("%s (%s)", c.Verdict, c.Why)
	}
}

// Goal: a fault that did not happen does not pass for one that did no harm.
func TestAFaultThatFailsIsNotPlayed(t *testing.T) {
	sub := Subject{Name: "it", Start: func(*Lab) (*System, error) { return &System{}, nil }}
	no := errors.New("it did not")
	for _, do := range []func(*play, string, func() error){(*play).Break, (*play).Arrange} {
		sc := Scenario{Name: "step", play: func(p *play) { do(p, "the clock steps", func() error { return no }) }}
		if c := Run(t.Context(), Settings{}, []Subject{sub}, []Scenario{sc}).Cells[0]; c.Verdict != NotPlayed || c.Why != "the clock steps: it did not" {
			t.Errorf("%s (%s)", c.Verdict, c.Why)
		}
	}
}

// Goal: a verdict does not depend on what else the machine had to do, and a wait in
// the store is not talked away.
func TestAWaitThatMayBeTheMachinesIsMeasuredAgain(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		waits  []time.Duration // of one play after the other; below 0: with two holders
		want   Verdict
		waited time.Duration
	}{
		{[]time.Duration{100 * ms}, Kept, 100 * ms},
		{[]time.Duration{700 * ms, 100 * ms}, Kept, 100 * ms},
		{[]time.Duration{700 * ms, 500 * ms, 100 * ms}, Kept, 100 * ms},
		{[]time.Duration{700 * ms, 500 * ms, 600 * ms}, Unavailable, 500 * ms},
		{[]time.Duration{1000 * ms}, Unavailable, 1000 * ms},
		{[]time.Duration{500 * ms, -600 * ms}, FalseClaim, 600 * ms},
	} {
		names := make(map[string]bool)
		plays := 0
		sc := Scenario{Name: "wait", play: func(p *play) {
			names[p.name] = true
			if plays++; plays > len(c.waits) {
				return // which is found below
			}
			if p.Waited = c.waits[plays-1]; p.Waited < 0 {
				p.Waited = -p.Waited
				now := driver.Now()
				p.History.Granted(history.Span{Worker: "A", Name: "n", Token: 1, From: now - 2*second})
				p.History.Granted(history.Span{Worker: "B", Name: "n", Token: 2, From: now - 1*second})
			}
		}}
		sub := Subject{Name: "it", Start: func(*Lab) (*System, error) { return &System{}, nil }}
		cell := Run(t.Context(), Settings{}, []Subject{sub}, []Scenario{sc}).Cells[0]
		if cell.Verdict != c.want || cell.Waited != c.waited {
			t.Errorf("%v: %s (%s) after %v, not %s after %v", c.waits, cell.Verdict, cell.Why, cell.Waited, c.want, c.waited)
		}
		if plays != len(c.waits) || len(names) != plays {
			t.Errorf("%v: played %d times with %d locks", c.waits, plays, len(names))
		}
	}
}
