package lockdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Find returns the full path of a directory for locks, which must exist and be writable: the process may change its working
// directory later.
func Find(dir string) (path string, err error) {
	if Unsupported != nil {
		return "", Unsupported
	}
	if path, err = filepath.Abs(dir); err == nil {
		err = check(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("make that directory first, with the mode 700: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("locks cannot be kept in %s: %w", dir, err)
	}
	return path, nil
}

func check(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is not a directory")
	}
	if err := mayUse(dir); err != nil {
		return fmt.Errorf("it cannot be written to, or read: %w", err)
	}
	return nil
}

// Open opens the file of a lock with these flags, follows no link, and does not wait for a pipe that lies there.
func Open(path string, flags int) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, flags|openFlags, 0)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: lock files are their maker's alone, so all processes that lock in a directory run as one user (this one as %d)",
			err, os.Geteuid())
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is in the place of the lock file and is not a regular file", fs.ErrInvalid, path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// Flush makes what was written to a file or directory durable. It is a variable so that a test can see when that is done, and make
// it fail.
var Flush = (*os.File).Sync

// NewTemp makes a file that holds content, durable and not yet under the name of a lock. One that a crash leaves behind is never
// taken for a lock's. Its mode does not depend on the umask. If root makes it, it belongs to the directory's owner.
func NewTemp(dir string, content []byte) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(content); err == nil {
		err = give(f, dir)
	}
	if err == nil {
		err = f.Chmod(fileMode)
	}
	if err == nil {
		err = Flush(f)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return f, nil
}

// SyncDir makes names of files durable that were made, or replaced, in a directory.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(Flush(d), d.Close())
}

// FileSystem is what a directory is on. The zero value is a disk of this machine.
type FileSystem struct {
	Name string
	Kind Kind
}

// Kind is a kind of file system.
type Kind uint8

// The kinds of file systems.
const (
	Disk      Kind = iota
	Network        // where a lock may reach this host alone, or nobody, and is lost with the connection
	Memory         // which a reboot empties
	Container      // the layers of a container, which no other container sees
)
