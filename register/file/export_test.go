package file

import (
	"os"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/lockdir"
	"github.com/lockstile/locker/register"
)

// MostBusy is how many calls may wait for the disk at once.
const MostBusy = mostBusy

// NewStore returns the Store, for tests of it.
func NewStore(dir string) (register.Store, register.Options, error) {
	s, err := newStore(dir)
	if err != nil {
		return nil, register.Options{}, err
	}
	return s, s.options(), nil
}

// SetFileSystem has directories be on another file system until the test ends.
func SetFileSystem(t testing.TB, system lockdir.FileSystem) {
	fileSystemOf = func(string) (lockdir.FileSystem, error) { return system, nil }
	t.Cleanup(func() { fileSystemOf = lockdir.FileSystemOf })
}

// WatchLock returns a channel that tells when a writer tries the kernel's lock.
func WatchLock(t testing.TB) <-chan struct{} {
	tried := make(chan struct{}, 1000)
	flock = func(f *os.File, how int) (bool, error) {
		defer func() { tried <- struct{}{} }()
		return lockdir.Flock(f, how)
	}
	t.Cleanup(func() { flock = lockdir.Flock })
	return tried
}

// Drain waits until no call is under way.
func Drain(t testing.TB, s register.Store) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(s.(*store).busy) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d calls are under way", len(s.(*store).busy))
		}
	}
}
