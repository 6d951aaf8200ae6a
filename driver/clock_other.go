//go:build !linux && !darwin

package driver

import "time"

func bootTime() time.Duration { return monotonicTime() }
