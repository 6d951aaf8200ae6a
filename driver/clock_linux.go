package driver

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME. Go's own monotonic clock is CLOCK_MONOTONIC,
// which stops while the machine is suspended: a holder on a laptop that slept for an hour
// would go on believing in its lock.
//
// A virtual machine that its hypervisor pauses or moves does not suspend itself. All of its
// clocks may stand still then, CLOCK_BOOTTIME too (cloud-hypervisor issue 8256, patroni issue
// 3407), and its holder believes until the next renewal is answered.
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
