package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockstile/locker"
)

// file is an open lock file. Whoever has the kernel's lock on it has the lock,
// for as long as it is the file that others find at its path.
type file struct {
	*os.File
	path   string
	lock   string      // the name of the lock
	info   os.FileInfo // of the open file
	held   bool        // we have the kernel's lock
	seen   bool        // others can see that we wait
	closed bool
}

// flush makes what was written to a file or directory durable. It is a variable
// so that a test can see when that is done, and make it fail.
var flush = (*os.File).Sync

// openFile opens the file of a lock for reading and writing. If there is none
// the error is fs.ErrNotExist.
func openFile(path, name string) (*file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|openFlags, 0)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: lock files are their maker's alone, so all processes that lock in a directory run as one user (this one as %d)",
			err, os.Geteuid())
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is in the place of the lock file and is not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &file{File: f, path: path, lock: name, info: info}, nil
}

// openOrCreate opens the file of a lock, which it makes if need be.
func openOrCreate(path, name string) (*file, error) {
	for range 10 { // somebody may delete it in between
		f, err := openFile(path, name)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		if err := create(path, name); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the lock file %s is deleted as fast as it is made", path)
}

// create makes the file of a lock appear complete, with no grant in it. A file
// that is there already stays: it has the counter. A file that is seen half
// written would have to be told from a damaged one, so none ever is.
func create(path, name string) error {
	temp, err := newTemp(path, name, grant{})
	if err != nil {
		return err
	}
	err = os.Link(temp.Name(), temp.path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(temp.Name()), temp.Close())
}

// newTemp makes a complete lock file under a temporary name. One that a crash
// leaves behind is 12 kB of litter and never taken for a lock's. Its mode is set
// before others can see it at its path: what the umask has left is not enough.
func newTemp(path, name string, last grant) (*file, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(newContent(name, last))
	if err == nil {
		err = f.Chmod(fileMode)
	}
	if err == nil {
		err = flush(f)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return &file{File: f, path: path, lock: name}, nil
}

// take takes the kernel's lock and reports false if somebody else has it.
func (f *file) take() (bool, error) {
	ok, err := lockFile(f.File)
	f.held = ok
	if ok && f.seen {
		err = retire(f.File)
	}
	return ok, err
}

// wait lets others see that we wait.
func (f *file) wait() error {
	if f.seen || f.closed {
		return nil
	}
	f.seen = true
	return announce(f.File)
}

// lost returns a LostError if f is no longer the file at its path: a lock on any
// other file excludes nobody.
func (f *file) lost() error {
	there, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &locker.LostError{Reason: locker.TakenOver}
	case err == nil && !os.SameFile(f.info, there):
		return &locker.LostError{Reason: locker.Forced}
	}
	return err
}

// newest reads the newest grant, and which block the next one goes to.
func (f *file) newest() (grant, int, error) {
	content := make([]byte, fileSize+1)
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return grant{}, 0, err
	}
	return readGrants(content[:n], f.path, f.lock)
}

// glance is newest for who does not have the lock. A grant that is written while we
// read can look like damage, so it looks again a few times.
func (f *file) glance() (last grant, err error) {
	for range 5 {
		if last, _, err = f.newest(); err == nil {
			break
		}
	}
	return last, err
}

// draw takes the next tokens, and returns them when it is certain that they will be
// remembered. Only who has the kernel's lock may call it.
func (f *file) draw(holder string) (grant, error) {
	last, spare, err := f.newest()
	if err != nil {
		return grant{}, err
	}
	next, err := last.next(holder)
	if err != nil {
		return grant{}, fmt.Errorf("the lock file %s: %w", f.path, err)
	}
	if err := f.write(next, spare); err != nil {
		return grant{}, err
	}
	if last.count == 0 {
		// Nobody was granted anything in this file before, so whoever put it
		// in the directory may have died before that was durable.
		err = syncDir(filepath.Dir(f.path))
	}
	return next, err
}

func (f *file) write(g grant, block int) error {
	if _, err := f.WriteAt(g.record(), int64(block)*blockSize); err != nil {
		return err
	}
	return flush(f.File)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(flush(d), d.Close())
}

// drop closes f and with it gives the kernel's lock back. It unlocks first: a
// process that was forked at this moment, and has not come to its exec yet, has
// the descriptor too, and would keep the lock until then.
func (f *file) drop() error {
	if f.held {
		_ = unlockFile(f.File) // what cannot be unlocked is freed by closing
	}
	f.held, f.closed = false, true
	return f.Close()
}
