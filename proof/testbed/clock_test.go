package testbed

import (
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
)

// A fault that does not happen must not count as one that did no harm.
func TestAServerWhoseClockDoesNotStepIsFound(t *testing.T) {
	ahead := func(d time.Duration) func() (time.Time, error) {
		return func() (time.Time, error) { return time.Now().Add(d), nil }
	}
	c := &clock{step: func(time.Duration) error { return nil }}
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		if err := c.checked(ahead(d))(d); err != nil {
			t.Errorf("stepped by %v: %v", d, err)
		}
		if c.checked(ahead(0))(d) == nil || c.checked(ahead(-d))(d) == nil {
			t.Errorf("not stepped by %v, and that is no error", d)
		}
	}
	if (&clock{}).checked(ahead(0)) != nil {
		t.Error("a clock that cannot be stepped has a step")
	}
}

// Method: a server with the clock in front of its C library, and one without.
func TestAPostgresWhoseClockDoesNotStepIsFound(t *testing.T) {
	t.Parallel()
	step := matrix.Scenario{
		Name: "step", Ruins: true,
		Needs: func(s *matrix.System) string {
			if s.StepClock == nil {
				return "no clock can be made here"
			}
			return ""
		},
		Play: func(p *matrix.Play) {
			p.Break("the clock steps", func() error { return p.System.StepClock(time.Hour) })
		},
	}
	for _, steps := range []bool{true, false} {
		sub := matrix.Subject{Name: "postgres", Start: func(lab *matrix.Lab) (*matrix.System, error) {
			clock := newClock(lab)
			var env []string
			if steps {
				env = clock.env()
			}
			clients := &movable{lab: lab}
			return clients.system(testserver.PostgresWithEnv(lab, env), clock, takeOver{})
		}}
		c := matrix.Run(t.Context(), matrix.Settings{}, []matrix.Subject{sub}, []matrix.Scenario{step}).Cells[0]
		if c.Verdict == matrix.Skipped {
			t.Skip(c.Why)
		}
		if (c.Verdict == matrix.Kept) != steps {
			t.Errorf("its clock steps: %v; %s (%s)", steps, c.Verdict, c.Why)
		}
	}
}
