package locker

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME. Go's own monotonic clock is CLOCK_MONOTONIC,
// which stops while the machine is suspended: a holder in a virtual machine
// that was paused for an hour would go on believing in its lock.
func bootTime() time.Duration {
	ts, err := clockGettime(unix.CLOCK_BOOTTIME)
	if err != nil {
		return monotonicTime() // Linux before 2.6.39, or a seccomp filter
	}
	return time.Duration(ts.Nano())
}

// clockGettime is a variable so that a test can have the machine suspended.
var clockGettime = func(id int32) (ts unix.Timespec, err error) {
	err = unix.ClockGettime(id, &ts)
	return ts, err
}
