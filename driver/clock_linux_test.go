package driver

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

// A machine that was suspended for an hour shows that in CLOCK_BOOTTIME alone.
func TestTheClockCountsASuspension(t *testing.T) {
	before, real := bootTime(), clockGettime
	t.Cleanup(func() { clockGettime = real })
	clockGettime = func(id int32) (unix.Timespec, error) {
		ts, err := real(id)
		if id == unix.CLOCK_BOOTTIME {
			ts.Sec += 3600
		}
		return ts, err
	}
	if passed := bootTime() - before; passed < time.Hour {
		t.Errorf("the clock shows that %v have passed, and it was an hour", passed)
	}
}

// A filter of system calls may keep CLOCK_BOOTTIME from a program, whose clock runs all the same.
func TestTheClockRunsWhereItCannotReadBootTime(t *testing.T) {
	real := clockGettime
	t.Cleanup(func() { clockGettime = real })
	clockGettime = func(int32) (unix.Timespec, error) { return real(99) } // no clock has this number
	before := monotonicTime()
	if now := bootTime(); now < before || now > monotonicTime() {
		t.Errorf("bootTime reads %v, the portable clock from %v to %v", now, before, monotonicTime())
	}
}
