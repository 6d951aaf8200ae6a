package driver

import (
	"math"
	"time"
)

// Instant is a reading of this machine's clock of elapsed time, on which validity is
// counted. The clock runs on while the machine is
// suspended (CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC_RAW on macOS; elsewhere Go's
// monotonic clock, which on some systems stands still then), and no step of the wall
// clock moves it. All clocks of a virtual machine may stand still while its hypervisor pauses
// it. Instants mean nothing outside the process. The zero Instant stands
// for "never".
type Instant time.Duration

// Now reads the clock. A backend does so before it sends the request that may grant
// or renew a lock, never after.
func Now() Instant { return Instant(elapsed()) }

// Add returns the instant d later. A sum that is out of range becomes the last
// instant, or the first, and does not wrap: a far end would lie in the past.
func (i Instant) Add(d time.Duration) Instant {
	switch sum := i + Instant(d); {
	case d > 0 && sum < i:
		return math.MaxInt64
	case d < 0 && sum > i:
		return math.MinInt64
	default:
		return sum
	}
}

// Sub returns the time from j to i, or if that is out of range, the longest
// Duration there is, or the shortest.
func (i Instant) Sub(j Instant) time.Duration {
	switch d := time.Duration(i - j); {
	case i > j && d < 0:
		return math.MaxInt64
	case i < j && d > 0:
		return math.MinInt64
	default:
		return d
	}
}

// elapsed is a variable so that tests can run on a virtual clock.
var elapsed = bootTime

// began is what the portable clock counts from. An hour is added so that no
// reading is the zero Instant.
var began = time.Now().Add(-time.Hour)

func monotonicTime() time.Duration { return time.Since(began) }
