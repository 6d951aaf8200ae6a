package locker

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CLOCK_BOOTTIME is CLOCK_MONOTONIC and the time for which the machine was
// suspended. On a machine that never was, the two cannot be told apart.
func TestTheClockIsBootTime(t *testing.T) {
	read := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			t.Skip("no CLOCK_BOOTTIME here: ", err)
		}
		return time.Duration(ts.Nano())
	}
	before := read()
	now := bootTime()
	if after := read(); now < before || now > after {
		t.Errorf("bootTime reads %v, CLOCK_BOOTTIME from %v to %v", now, before, after)
	}
}
