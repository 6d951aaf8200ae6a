package locker

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME. Go's own monotonic clock is CLOCK_MONOTONIC,
// which stops while the machine is suspended: a holder in a virtual machine
// that was paused for an hour would go on believing in its lock.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return monotonicTime() // Linux before 2.6.39, or a seccomp filter
	}
	return time.Duration(ts.Nano())
}
