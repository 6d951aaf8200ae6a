package testbed

import (
	"testing"
	"time"
)

// A fault that does not happen must not pass for one that was borne.
func TestAServerThatDoesNotHeedItsClockIsFoundOut(t *testing.T) {
	ahead := func(d time.Duration) func() (time.Time, error) {
		return func() (time.Time, error) { return time.Now().Add(d), nil }
	}
	c := &clock{step: func(time.Duration) error { return nil }}
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		if err := c.heeded(ahead(d))(d); err != nil {
			t.Errorf("stepped by %v: %v", d, err)
		}
		if c.heeded(ahead(0))(d) == nil || c.heeded(ahead(-d))(d) == nil {
			t.Errorf("not stepped by %v, and nobody notices", d)
		}
	}
	if (&clock{}).heeded(ahead(0)) != nil {
		t.Error("a clock that cannot be stepped has a step")
	}
}
