package file

import (
	"io/fs"
	"os"
	"path/filepath"
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

// BeforeLock calls do when a writer has opened a file and is about to lock it.
func BeforeLock(t testing.TB, do func()) {
	flock = func(f *os.File, how int) (bool, error) {
		do()
		return lockdir.Flock(f, how)
	}
	t.Cleanup(func() { flock = lockdir.Flock })
}

// Unreadable has the file of a name be one that this user may not open, until the test ends.
func Unreadable(t testing.TB, name string) {
	openFile = func(path string, flags int) (*os.File, os.FileInfo, error) {
		if filepath.Base(path) == lockdir.FileName(name) {
			return nil, nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
		}
		return lockdir.Open(path, flags)
	}
	t.Cleanup(func() { openFile = lockdir.Open })
}

// Drain waits until no call is under way. What comes next happens after all that those calls have done.
func Drain(t testing.TB, s register.Store) {
	t.Helper()
	busy, end := s.(*store).busy, time.After(30*time.Second)
	for n := range cap(busy) {
		select {
		case busy <- struct{}{}:
		case <-end:
			t.Errorf("%d calls or more are under way", cap(busy)-n)
			return
		}
	}
	for range cap(busy) {
		<-busy
	}
}
