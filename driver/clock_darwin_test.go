package driver

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CLOCK_UPTIME_RAW is the clock that stops while the machine sleeps. On one that
// never slept the two cannot be told apart.
func TestTheClockIsTheOneThatRunsWhileTheMachineSleeps(t *testing.T) {
	read := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts); err != nil {
			t.Fatal(err)
		}
		return time.Duration(ts.Nano())
	}
	before := read()
	now := bootTime()
	if after := read(); now < before || now > after {
		t.Errorf("bootTime reads %v, CLOCK_MONOTONIC_RAW from %v to %v", now, before, after)
	}
}
