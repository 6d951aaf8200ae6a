package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/internal/lockdir"
)

// file is an open lock file. The kernel's lock on it is the lock. It counts only while
// the file is still the one at its path.
type file struct {
	*os.File
	path   string
	lock   string      // the name of the lock, "" if that is not known
	info   os.FileInfo // of the open file, when it was opened
	seen   bool        // others can see that we wait
	closed bool

	place  int64  // ours, beside others who have the lock; or 0
	slot   int    // ours, if there are slots
	mark   string // the sum in the record of our place
	listed int    // places of others that beside has read last
}

// mostBusy is how many calls of one Locker may wait for the disk at once. Further calls wait for them: a
// call that gives up on a disk that hangs leaves a thread behind.
const mostBusy = 64

// within calls do, which may wait for a disk, and returns early if ctx ends. Then undo is called with
// what do returns, and gone is closed after that. The capacity of busy bounds how many do so at once.
func within[T any](ctx context.Context, busy chan struct{}, do func() (T, error), undo func(T)) (v T, gone <-chan struct{}, err error) {
	select {
	case busy <- struct{}{}:
	case <-ctx.Done():
		return v, nil, context.Cause(ctx)
	}
	call := async.Start(func() (T, error) {
		defer func() { <-busy }()
		return do()
	})
	select {
	case <-call.Ended():
		v, err = call.Wait(ctx)
		return v, nil, err
	case <-ctx.Done():
	}
	undone := make(chan struct{})
	go func() { // ends with the disk
		defer close(undone)
		<-call.Ended()
		late, _ := call.Wait(ctx)
		undo(late)
	}()
	return v, undone, context.Cause(ctx)
}

// openFile opens the file of a lock for reading and writing. If there is none
// it returns nil, and no error.
func openFile(path, name string) (*file, error) {
	f, info, err := lockdir.Open(path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &file{File: f, path: path, lock: name, info: info}, nil
}

// openOrCreate opens the file of a lock, which it makes if need be.
func openOrCreate(path, name string) (*file, error) {
	for range 10 { // somebody may delete it in between
		f, err := openFile(path, name)
		if f != nil || err != nil {
			return f, err
		}
		if err := create(path, name); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the lock file %s is deleted as fast as it is made", path)
}

// create makes the file of a lock, with no grant in it. A file that is there already
// stays: it has the counter. The file appears complete, because one that is seen half
// written would look damaged.
func create(path, name string) error {
	temp, err := newTemp(path, grant{lock: name})
	if err != nil {
		return err
	}
	err = os.Link(temp.Name(), temp.path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(temp.Name()), temp.Close())
}

// newTemp makes a complete lock file under a temporary name.
func newTemp(path string, last grant) (*file, error) {
	f, err := lockdir.NewTemp(filepath.Dir(path), newContent(last))
	if err != nil {
		return nil, err
	}
	return &file{File: f, path: path, lock: last.lock}, nil
}

// lost returns a LostError if f is no longer the file at its path: a lock on any
// other file excludes nobody. Or our place was broken.
func (f *file) lost() error {
	there, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &locker.LostError{Reason: locker.ReasonTakenOver}
	case err == nil && !os.SameFile(f.info, there):
		return &locker.LostError{Reason: locker.ReasonForced}
	}
	if err == nil && f.mark != "" {
		err = f.evicted()
	}
	return err
}

// ours reports whether a file has the size of a lock file: there may be records of places.
func ours(size int64) bool { return size >= fileSize && (size-fileSize)%slotSize == 0 }

// newest reads the newest grant, and which slot is spare: the next grant goes there.
func (f *file) newest() (last grant, spare int, err error) {
	content := make([]byte, fileSize)
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return last, 0, err
	}
	last, spare, err = readGrants(content[:n], f.path)
	switch {
	case err != nil:
	case f.info != nil && f.info.Size() > fileSize && !ours(f.info.Size()):
		return last, 0, damaged(f.path, fmt.Sprintf("it has %d bytes", f.info.Size()))
	case f.lock != "" && f.lock != last.lock:
		err = fmt.Errorf("the lock file %s belongs to the lock %q: was it copied? If nobody uses it, delete it", f.path, last.lock)
	}
	return last, spare, err
}

// glance is newest for those who do not have the lock. A grant that is written while we
// read can look like damage, so it reads again a few times.
func (f *file) glance() (last grant, err error) {
	for range 5 {
		if last, _, err = f.newest(); err == nil {
			break
		}
	}
	return last, err
}

// draw takes the next tokens, and returns them when they are on the disk. Its caller has
// taken the lock.
func (f *file) draw(req *driver.Request) (grant, error) {
	last, spare, err := f.newest()
	if err != nil {
		return grant{}, err
	}
	if next, ok, err := f.share(last, req); ok || err != nil {
		return next, err
	}
	next, err := last.next(req, f.slot)
	if err != nil {
		return grant{}, fmt.Errorf("the lock file %s: %w", f.path, err)
	}
	if err := f.write(next, spare); err != nil {
		return grant{}, err
	}
	if last.count == 0 {
		// The file had no grant yet, so the process that put it in the directory
		// may have died before that was durable.
		err = lockdir.SyncDir(filepath.Dir(f.path))
	}
	if f.place != 0 { // the rest is for others
		next = next.part(next.first(), req, f.slot)
	}
	if err == nil {
		err = f.settle(next)
	}
	return next, err
}

func (f *file) write(g grant, slot int) error {
	if _, err := f.WriteAt(g.encode(), int64(slot)*blockSize); err != nil {
		return err
	}
	return lockdir.Flush(f.File)
}

// drop closes f and with it gives the kernel's lock back. It unlocks first: a process
// that was forked just now has the descriptor too, and would keep the lock until its
// exec. Of a file that could not be opened there is nothing to drop.
func (f *file) drop() error {
	if f == nil {
		return nil
	}
	f.closed = true
	_ = unlockBytes(f.File, 0, 0) // what cannot be unlocked is freed by closing
	return f.Close()
}
