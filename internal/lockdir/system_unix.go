//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package lockdir

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Unsupported is why there are no locks on files here.
var Unsupported error

// How [Flock] locks.
const (
	Exclusive = unix.LOCK_EX
	Shared    = unix.LOCK_SH
	Unlock    = unix.LOCK_UN
)

// Flock locks a file with flock(2), and reports false if somebody else has it.
func Flock(f *os.File, how int) (bool, error) {
	err := unix.EINTR
	for err == unix.EINTR {
		err, _ = unix.Flock(int(f.Fd()), how|unix.LOCK_NB).(syscall.Errno)
	}
	switch err {
	case 0:
		return true, nil
	case unix.EWOULDBLOCK:
		return false, nil
	}
	return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
}

func canWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
