package local

import (
	"io"
	"math/rand/v2"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open file description locks belong to the open file, not to the process as
// classic fcntl locks do: two Lockers of one process exclude each other, and
// closing some other descriptor of the file frees nothing. Byte 0 of the file
// is the lock; a waiter locks one byte of its own behind it, where it can be
// seen and counted without a byte being written.
const (
	openFlags   = unix.O_NOFOLLOW | unix.O_NONBLOCK // O_NONBLOCK: opening a FIFO that lies there must not hang
	seesWaiters = true
	lastByte    = 1 << 62
)

// fileMode is for the owner alone. The sticky bit means nothing to the kernel on
// a file. It keeps systemd-tmpfiles from deleting the file of a held lock, which
// looks old after 10 days in /tmp: "Skip files for which the sticky bit is set",
// says dir_cleanup in its src/tmpfiles/tmpfiles.c, and refers to the specification
// of $XDG_RUNTIME_DIR, where 6 hours are enough to look old. It also passes over
// directories that somebody has locked with flock, which costs a descriptor.
const fileMode = os.ModeSticky | 0o600

// unsupported is why New refuses to work here.
var unsupported error

// lockFile takes the lock and reports false if somebody else has it.
func lockFile(f *os.File) (bool, error) { return lockByte(f, 0) }

// unlockFile gives the lock back, if f has it, and stops being seen as a waiter.
func unlockFile(f *os.File) error { return unlockFrom(f, 0) }

// isLocked reports whether another open file has the lock.
func isLocked(f *os.File) (bool, error) {
	_, ok, err := getLock(f, 0, 1)
	return ok, err
}

// announce lets others see that f waits. Should the byte be another waiter's by
// chance, f is not counted: waiting does not depend on it.
func announce(f *os.File) error {
	_, err := lockByte(f, 1+rand.Int64N(lastByte))
	return err
}

// retire undoes announce.
func retire(f *os.File) error { return unlockFrom(f, 1) }

// unlockFrom lets go of whatever f has locked from a byte on.
func unlockFrom(f *os.File, at int64) error {
	lock := unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart, Start: at}
	return wrap(f, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock))
}

// countWaiters counts the others who wait, up to most.
func countWaiters(f *os.File, most int) (int, error) {
	return countBetween(f, 1, lastByte, most)
}

// countBetween counts the bytes from first to last that others have locked. The
// kernel names any one of them, so those before it and behind it are counted
// in turn. It calls itself most times at the most.
func countBetween(f *os.File, first, last int64, most int) (int, error) {
	if most <= 0 || first > last {
		return 0, nil
	}
	at, ok, err := getLock(f, first, last-first+1)
	if err != nil || !ok {
		return 0, err
	}
	before, err := countBetween(f, first, at-1, most-1)
	if err != nil {
		return 0, err
	}
	behind, err := countBetween(f, at+1, last, most-1-before)
	return 1 + before + behind, err
}

func lockByte(f *os.File, at int64) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: at, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if err == unix.EAGAIN || err == unix.EACCES {
		return false, nil
	}
	return err == nil, wrap(f, err)
}

// getLock returns where in the range another open file has a lock.
func getLock(f *os.File, start, length int64) (at int64, ok bool, err error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: start, Len: length}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return 0, false, wrap(f, err)
	}
	return lock.Start, lock.Type != unix.F_UNLCK, nil
}

func wrap(f *os.File, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: "fcntl", Path: f.Name(), Err: err}
}

func owner(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

func canWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
