//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package local

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// flock(2) has one lock a file and no way to ask about it, so waiters are not seen here.
const (
	openFlags   = unix.O_NOFOLLOW | unix.O_NONBLOCK // O_NONBLOCK: opening a FIFO that lies there must not hang
	seesWaiters = false

	// fileMode is for the owner alone. The sticky bit, which helps on Linux, can be
	// set only by root on a file of a BSD, and no sweeper there heeds it.
	fileMode = 0o600
)

// unsupported is why New refuses to work here.
var unsupported error

// lockFile takes the lock and reports false if somebody else has it.
func lockFile(f *os.File) (bool, error) { return flock(f, unix.LOCK_EX) }

// unlockFile gives the lock back.
func unlockFile(f *os.File) error {
	_, err := flock(f, unix.LOCK_UN)
	return err
}

// isLocked reports whether another open file has the lock. It must not be
// asked of a file that has the lock itself, which it would lose.
func isLocked(f *os.File) (bool, error) {
	free, err := flock(f, unix.LOCK_SH)
	if err != nil || !free {
		return err == nil, err
	}
	return false, unlockFile(f)
}

func announce(*os.File) error                 { return nil }
func retire(*os.File) error                   { return nil }
func countWaiters(*os.File, int) (int, error) { return 0, nil }

func flock(f *os.File, how int) (bool, error) {
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

func owner(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

func canWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
