//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package local

import (
	"os"

	"github.com/lockstile/locker/internal/lockdir"
)

const byteRanges = false

func lockBytes(*os.File, int64, int64) (bool, error) { return false, lockdir.Unsupported }
func unlockBytes(*os.File, int64, int64) error       { return lockdir.Unsupported }
func owner(os.FileInfo) int                          { return -1 }

func getLock(*os.File, int64, int64) (start, length int64, ok bool, err error) {
	return 0, 0, false, lockdir.Unsupported
}
