//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package local

import (
	"errors"
	"os"
	"runtime"
)

const (
	openFlags   = 0
	seesWaiters = false
	fileMode    = 0o600
)

// unsupported is why New refuses to work here.
var unsupported = errors.New("kernel file locks are not supported on " + runtime.GOOS + ": use a backend with a server")

func lockFile(*os.File) (bool, error)         { return false, unsupported }
func unlockFile(*os.File) error               { return unsupported }
func isLocked(*os.File) (bool, error)         { return false, unsupported }
func announce(*os.File) error                 { return unsupported }
func retire(*os.File) error                   { return unsupported }
func countWaiters(*os.File, int) (int, error) { return 0, unsupported }
func owner(os.FileInfo) int                   { return -1 }
func canWrite(string) error                   { return unsupported }
