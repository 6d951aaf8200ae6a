//go:build !linux

package locker

import "time"

func bootTime() time.Duration { return monotonicTime() }
