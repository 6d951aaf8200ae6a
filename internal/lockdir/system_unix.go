//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package lockdir

import (
	"errors"
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
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	}
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) {
		return err == nil, nil
	}
	return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
}

// mayUse reports why this user cannot have files in a directory, and sync it.
func mayUse(dir string) error { return unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK) }

// give has a file that root makes belong to the directory's owner, who could not use the lock any more otherwise.
func give(f *os.File, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return f.Chown(int(info.Sys().(*syscall.Stat_t).Uid), -1)
}
