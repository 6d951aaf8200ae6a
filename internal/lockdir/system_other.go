//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package lockdir

import (
	"errors"
	"os"
	"runtime"
)

// Unsupported is why there are no locks on files here.
var Unsupported = errors.New("kernel file locks are not supported on " + runtime.GOOS + ": use a backend with a server")

const (
	openFlags = 0
	fileMode  = 0o600
)

// How [Flock] locks.
const (
	Exclusive = iota
	Shared
	Unlock
)

// Flock returns an error.
func Flock(*os.File, int) (bool, error) { return false, Unsupported }

func mayUse(string) error { return Unsupported }

func give(*os.File, string) error { return Unsupported }

// FileSystemOf returns an error.
func FileSystemOf(string) (FileSystem, error) {
	return FileSystem{}, errors.New("how is known for Linux only")
}
