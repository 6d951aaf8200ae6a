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
	if info.Held, err = isLocked(f.File); err != nil {
		return info, err
	}
	if info.Waiters, err = countWaiters(f.File, mostCounted); err != nil {
		return info, err
	}
	last, err := f.glance()
	info.Name, info.Token = last.lock, last.first()
	if info.Held {
		info.Holder = last.holder
	}
	return info, err
}

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

// inspectHeld inspects the lock of a file, whose name it does not know yet. It returns
// nothing for a lock that nobody holds, so that a damaged file spoils no list, nor for a
// file that is not ours, or a copy.
func (s *store) inspectHeld(file, prefix string) (info locker.Info, err error) {
	f, err := openFile(filepath.Join(s.dir, file), "")
	if errors.Is(err, fs.ErrNotExist) {
		return info, nil // it was deleted meanwhile
	}
	if err != nil {
		return info, err
	}
	defer f.Close() // nothing was written
	if held, err := isLocked(f.File); err != nil || !held || f.info.Size() != fileSize {
		return info, err
	}
	info, err = f.inspect()
	if err == nil && (fileName(info.Name) != file || !strings.HasPrefix(info.Name, prefix)) {
		return locker.Info{}, nil
	}
	return info, err
}
