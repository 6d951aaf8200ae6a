//go:build !linux && !darwin

package locker

import "time"

func bootTime() time.Duration { return monotonicTime() }
