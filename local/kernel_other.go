//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package local

import (
	"errors"
	"os"
	"runtime"
)

const (
	openFlags  = 0
	byteRanges = false
	fileMode   = 0o600
)

// unsupported is why New refuses to work here.
var unsupported = errors.New("kernel file locks are not supported on " + runtime.GOOS + ": use a backend with a server")

func lockBytes(*os.File, int64, int64) (bool, error) { return false, unsupported }
func unlockBytes(*os.File, int64, int64) error       { return unsupported }
func owner(os.FileInfo) int                          { return -1 }
func canWrite(string) error                          { return unsupported }

func getLock(*os.File, int64, int64) (start, length int64, ok bool, err error) {
	return 0, 0, false, unsupported
}
