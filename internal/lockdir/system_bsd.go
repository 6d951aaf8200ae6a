//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package lockdir

import (
	"errors"

	"golang.org/x/sys/unix"
)

const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// fileMode is for the owner alone. The sticky bit, which helps on Linux, can be
// set only by root on a file of a BSD, and no sweeper there heeds it.
const fileMode = 0o600

// FileSystemOf returns what a directory is on, which is known for Linux alone.
func FileSystemOf(string) (FileSystem, error) {
	return FileSystem{}, errors.New("how is known for Linux only")
}
