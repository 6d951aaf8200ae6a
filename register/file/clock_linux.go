package file

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hasClock says that records have an age.
const hasClock = true

// clock is the machine's clock of elapsed time since it was started.
type clock struct {
	boot   string        // which start that was
	offset time.Duration // that the time namespace of this process adds
}

func newClock() clock {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it records are known by the wall clock
	offsets, _ := os.ReadFile("/proc/self/timens_offsets")    // Linux before 5.6 has none
	return clock{strings.TrimSpace(string(boot)), bootOffset(string(offsets))}
}

// bootOffset reads a file of lines such as "boottime -5 0": a name, seconds and nanoseconds. See time_namespaces(7).
func bootOffset(text string) time.Duration {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "boottime" {
			sec, err := time.ParseDuration(f[1] + "s")
			nsec, err2 := time.ParseDuration(f[2] + "ns")
			if err == nil && err2 == nil {
				return sec + nsec
			}
		}
	}
	return 0
}

// now is 0 where the clock cannot be read: then nothing has an age.
func (c clock) now() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano()) - c.offset
}

func (c clock) stamp(name string) stamp {
	if now := c.now(); now > 0 {
		return stamp{Name: name, Boot: c.boot, At: int64(now)}
	}
	return stamp{Name: name}
}

// age is for how long at least a record has been so. Another start was before this one, if it was the same machine's. But a container may hide
// which start it is. So the wall clock has to say the same.
func (c clock) age(st stamp, info os.FileInfo) time.Duration {
	now := c.now()
	if st.Boot == c.boot && c.boot != "" {
		return max(now-time.Duration(st.At), 0)
	}
	return max(min(now, time.Since(info.ModTime())-clockStep), 0)
}
