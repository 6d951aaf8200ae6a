package testbed

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
)

// clock is the wall clock of some servers.
type clock struct {
	*testserver.Clock                           // nil where a clock cannot be stepped
	step              func(time.Duration) error // nil there too
}

// newClock returns a clock that can be stepped, if this machine can make one.
func newClock(lab *matrix.Lab) *clock { return newClocks(lab, 1)[0] }

// newClocks returns n clocks. They can be stepped if this machine has a C compiler and can
// load a library in front of others.
func newClocks(lab *matrix.Lab, n int) []*clock {
	clocks := make([]*clock, n)
	built, err := testserver.Clocks(lab.TempDir(), n)
	if !errors.Is(err, testserver.ErrNoClock) {
		must(lab, "clock", err)
	}
	for i := range clocks {
		clocks[i] = &clock{}
		if err == nil {
			clocks[i] = &clock{built[i], built[i].Step}
		}
	}
	return clocks
}

// checked is step with a check that the server's clock has stepped: nothing can be loaded
// in front of the C library of a server that is linked statically, which would survive
// every step. now asks the server for its time. checked returns nil if the clock cannot be
// stepped.
func (c *clock) checked(now func() (time.Time, error)) func(time.Duration) error {
	if c.step == nil {
		return nil
	}
	return func(d time.Duration) error {
		if err := c.step(d); err != nil {
			return err
		}
		there, err := now()
		if err != nil {
			return fmt.Errorf("asking for the server's time: %w", err)
		}
		if off := time.Until(there); (off - d).Abs() > closeEnough {
			return fmt.Errorf("the server's clock is off by %v and not by %v: it does not use the library that was loaded in front", off.Round(time.Second), d)
		}
		return nil
	}
}

// stepping is checked for a Redis, which then forgets what has ended by the new clock:
// left alone it does so when it gets to it.
func (c *clock) stepping(srv *testserver.RedisServer) func(time.Duration) error {
	step := c.checked(timeOf(srv))
	if step == nil {
		return nil
	}
	return func(d time.Duration) error {
		if err := step(d); err != nil {
			return err
		}
		_, err := srv.TryDo("SCAN", "0", "COUNT", "1000") // more keys than there are
		return err
	}
}

// wakingSessions is checked for a PostgreSQL. After a step forward, before it returns, every session looks at the clock, and
// ends if by that clock it has been idle for too long. Left alone, a session looks when its next timer fires, and some timers
// run for a second after each statement: chance would decide whether it ends before a renewal hides the step.
func (c *clock) wakingSessions(srv *testserver.PostgresServer) func(time.Duration) error {
	step := c.checked(timeOfPostgres(srv))
	if step == nil {
		return nil
	}
	return func(d time.Duration) error {
		if err := step(d); err != nil || d < 0 {
			return err
		}
		return fireTimers(srv.URL("postgres"))
	}
}

// hourAhead steps the clock an hour forward, has begin start a server that goes by it, and
// checks that the server does. It returns nil if the clock cannot be stepped.
func (c *clock) hourAhead(lab *matrix.Lab, begin func() (now func() (time.Time, error))) func() error {
	if c.step == nil {
		return nil
	}
	return func() error {
		if err := c.step(time.Hour); err != nil {
			return err
		}
		var now func() (time.Time, error)
		if err := lab.Try(func() { now = begin() }); err != nil {
			return err
		}
		return c.checked(now)(time.Hour)
	}
}

// closeEnough is more than any answer takes and less than any step.
const closeEnough = 15 * time.Minute

// env returns what a server needs in its environment.
func (c *clock) env() []string {
	if c.step == nil {
		return nil
	}
	return c.Env()
}
