//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package local

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// flock(2) has one lock a file, no parts of it, and no way to ask about it. So there are
// exclusive locks alone, and waiters are not seen.
const (
	openFlags  = unix.O_NOFOLLOW | unix.O_NONBLOCK // O_NONBLOCK: opening a FIFO that lies there must not hang
	byteRanges = false

	// fileMode is for the owner alone. The sticky bit, which helps on Linux, can be
	// set only by root on a file of a BSD, and no sweeper there heeds it.
	fileMode = 0o600
)

// unsupported is why New refuses to work here.
var unsupported error

// lockBytes takes the one lock that there is, whichever bytes are meant, and reports false
// if somebody else has it.
func lockBytes(f *os.File, _, _ int64) (bool, error) { return flock(f, unix.LOCK_EX) }

// unlockBytes gives it back.
func unlockBytes(f *os.File, _, _ int64) error {
	_, err := flock(f, unix.LOCK_UN)
	return err
}

// getLock reports whether another open file has the lock. It must not be asked of a file
// that has the lock itself, which it would lose; the bytes behind the first are nobody's.
func getLock(f *os.File, at, _ int64) (start, length int64, ok bool, err error) {
	if at != 0 {
		return 0, 0, false, nil
	}
	free, err := flock(f, unix.LOCK_SH)
	if err != nil || !free {
		return 0, 0, err == nil, err
	}
	return 0, 0, false, unlockBytes(f, 0, 0)
}

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
