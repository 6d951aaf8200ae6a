package local

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open file description locks belong to the open file, not to the process as
// classic fcntl locks do: two Lockers of one process exclude each other, and
// closing some other descriptor of the file frees nothing. place.go says what the
// bytes mean.
const byteRanges = true

// lockBytes locks n bytes from at on, all or none, and reports false if another open file
// has any of them.
func lockBytes(f *os.File, at, n int64) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: at, Len: n}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if err == unix.EAGAIN || err == unix.EACCES {
		return false, nil
	}
	return err == nil, wrap(f, err)
}

// unlockBytes lets go of what f has locked of n bytes from at on, or, if n is 0, of all.
func unlockBytes(f *os.File, at, n int64) error {
	lock := unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart, Start: at, Len: n}
	return wrap(f, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock))
}

// getLock returns a lock that another open file has on any of n bytes from at on: where it
// begins, and how long it is, 0 if it has no end.
func getLock(f *os.File, at, n int64) (start, length int64, ok bool, err error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: at, Len: n}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return 0, 0, false, wrap(f, err)
	}
	return lock.Start, lock.Len, lock.Type != unix.F_UNLCK, nil
}

func wrap(f *os.File, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: "fcntl", Path: f.Name(), Err: err}
}

func owner(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
