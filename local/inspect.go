package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstile/locker"
)

// mostCounted bounds how many waiters Inspect counts.
const mostCounted = 10_000

// Inspect implements [locker.Inspector].
func (s *store) Inspect(ctx context.Context, name string) (locker.Info, error) {
	if ctx.Err() != nil {
		return locker.Info{}, context.Cause(ctx)
	}
	f, err := openFile(s.path(name), name)
	if errors.Is(err, fs.ErrNotExist) {
		return locker.Info{}, nil
	}
	if err != nil {
		return locker.Info{}, err
	}
	defer f.Close() // nothing was written
	return f.inspect()
}

func (f *file) inspect() (info locker.Info, err error) {
	info.Name = f.lock
	if info.Held, err = isLocked(f.File); err != nil {
		return info, err
	}
	if info.Waiters, err = countWaiters(f.File, mostCounted); err != nil {
		return info, err
	}
	last, err := f.glance()
	info.Token = last.first()
	if info.Held {
		info.Holder = last.holder
	}
	return info, err
}

// List implements [locker.Lister].
func (s *store) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var held []locker.Info
	for _, file := range files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !file.Type().IsRegular() || filepath.Ext(file.Name()) != suffix {
			continue
		}
		info, err := s.inspectHeld(file.Name(), prefix)
		if err != nil {
			return nil, err
		}
		if info.Held {
			held = append(held, info)
		}
	}
	return held, nil
}

// inspectHeld inspects a lock whose file we know, and not its name. It returns nothing
// of one that nobody holds, so that a damaged file spoils no list, nor of a file that
// is not ours, or a copy.
func (s *store) inspectHeld(fileIs, prefix string) (info locker.Info, err error) {
	f, err := openFile(filepath.Join(s.dir, fileIs), "")
	if errors.Is(err, fs.ErrNotExist) {
		return info, nil // it was deleted meanwhile
	}
	if err != nil {
		return info, err
	}
	defer f.Close() // nothing was written
	if held, err := isLocked(f.File); err != nil || !held {
		return info, err
	}
	head := make([]byte, recordSize)
	if _, err := f.ReadAt(head, 0); err != nil {
		return info, nil //nolint:nilerr // it is too short to be ours
	}
	name, ours := readName(head)
	if !ours || fileName(name) != fileIs || !strings.HasPrefix(name, prefix) {
		return info, nil
	}
	f.lock = name
	return f.inspect()
}
