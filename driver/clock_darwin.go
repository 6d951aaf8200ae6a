package driver

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_MONOTONIC_RAW, which goes on while the machine sleeps.
// Go's own monotonic clock, mach_absolute_time, stops. CLOCK_MONOTONIC goes on as
// well, but the C library makes it of the wall clock and the time of the boot, and
// a wall clock decides nothing here.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts); err != nil {
		return monotonicTime() // macOS before 10.12
	}
	return time.Duration(ts.Nano())
}
