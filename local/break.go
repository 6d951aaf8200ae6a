package local

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Break lets one breaker at a time replace a file. Of two that read the same file, the
// later one would write a counter that is not the last.
func (s *store) Break(ctx context.Context, name string, tokens ...uint64) (bool, error) {
	breaker, err := openOrCreate(filepath.Join(s.dir, ".break"), "") // of no lock: nothing in it is read
	if err != nil {
		return false, err
	}
	defer func() { _ = breaker.drop() }()
	for {
		ok, err := breaker.take()
		switch {
		case err != nil:
			return false, err
		case ok:
			return replace(s.path(name), name)
		}
		if err := pause(ctx); err != nil {
			return false, err
		}
	}
}

// replace puts a new file with the same counter in the place of one that is
// locked, and reports whether it was. Only one breaker of a directory is in here.
//
// An acquirer on the old file takes the kernel's lock, looks whether the file is
// still at its path (first look), writes its tokens, looks again (second look),
// and returns. A breaker renames first and reads the counter afterwards, while
// it keeps the new file locked:
//
//   - rename before the first look: the acquirer writes nothing and goes on to
//     the new file, which it gets when the breaker has written the counter.
//   - rename between the looks: its tokens may or may not be read here, but are
//     returned to nobody. It can be in the middle of its write, which spoils one
//     slot at most: there is no second such acquirer, for the next one to lock
//     the old file fails at its first look. The other slot has the last tokens
//     that were returned.
//   - rename after the second look: the tokens were written before, all that the
//     lease will ever have, so their last is read here. The acquirer is the holder
//     that we break. Goroutines that it passes the lease on to have none above it.
//   - the holder gives the lock back at any point: it looks too. If it holds the lock at
//     the rename, it is broken; if nobody does, the new file is as free as the old one.
//
// A breaker that dies after the rename leaves the counter as it was before the rename.
// Only the clock then keeps later tokens above those given between the two readings. A
// breaker that is paused there keeps the lock from everybody, as a paused holder does.
func replace(path, name string) (bool, error) {
	old, err := openFile(path, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = old.drop() }()
	if locked, err := isLocked(old.File); err != nil || !locked {
		return false, err
	}
	last, err := old.glance()
	if err != nil {
		return false, err
	}
	fresh, err := newTemp(path, grant{lock: name, last: last.last})
	if err != nil {
		return false, err
	}
	defer func() { _ = fresh.drop() }()
	if ok, err := fresh.take(); err != nil || !ok {
		return false, errors.Join(cmp.Or(err, errors.New("somebody has locked its new file")), os.Remove(fresh.Name()))
	}
	if err := os.Rename(fresh.Name(), path); err != nil {
		return false, errors.Join(err, os.Remove(fresh.Name()))
	}
	last, err = old.glance()
	if err == nil {
		err = fresh.write(grant{lock: name, last: last.last}, 0)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err == nil, err
}
