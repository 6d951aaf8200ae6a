//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package local

import (
	"os"
	"syscall"

	"github.com/lockstile/locker/internal/lockdir"
)

// flock(2) has one lock a file, no parts of it, and no way to ask about it. So there are
// exclusive locks alone, and waiters are not seen.
const byteRanges = false

// lockBytes takes the one lock that there is, whichever bytes are meant, and reports false
// if somebody else has it.
func lockBytes(f *os.File, _, _ int64) (bool, error) { return lockdir.Flock(f, lockdir.Exclusive) }

// unlockBytes gives it back.
func unlockBytes(f *os.File, _, _ int64) error {
	_, err := lockdir.Flock(f, lockdir.Unlock)
	return err
}

// getLock reports whether another open file has the lock. It must not be asked of a file
// that has the lock itself, which it would lose; the bytes behind the first are nobody's.
func getLock(f *os.File, at, _ int64) (start, length int64, ok bool, err error) {
	if at != 0 {
		return 0, 0, false, nil
	}
	free, err := lockdir.Flock(f, lockdir.Shared)
	if err != nil || !free {
		return 0, 0, err == nil, err
	}
	return 0, 0, false, unlockBytes(f, 0, 0)
}

func owner(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
