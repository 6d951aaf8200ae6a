package testbed

import (
	"strings"
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
	for _, steps := range []bool{true, false} {
		lab := new(matrix.Lab)
		t.Cleanup(lab.Close)
		var clock *clock
		if err := lab.Try(func() { clock = newClock(lab) }); err != nil {
			t.Fatal(err)
		}
		if clock.step == nil {
			t.Skip("no clock can be made here")
		}
		var env []string
		if steps {
			env = clock.env()
		}
		clients := &movable{lab: lab}
		sys, err := clients.system(testserver.PostgresWithEnv(t, env), clock, takeOver{})
		if err != nil {
			t.Fatal(err)
		}
		err = sys.StepClock(time.Hour)
		if steps && err != nil || !steps && (err == nil || !strings.Contains(err.Error(), "does not use the library")) {
			t.Errorf("its clock steps: %v; %v", steps, err)
		}
	}
}
