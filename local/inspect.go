package local

import (
	"context"
	"errors"
	"io/fs"

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
