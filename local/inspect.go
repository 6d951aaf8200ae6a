package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/lockstile/locker"
)

// Inspect implements [locker.Inspector]. It makes no file. A holder that has
// not drawn its token yet is shown under the name of the one before it.
func (l *Locker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	if err := locker.CheckName(name); err != nil {
		return locker.Info{}, err
	}
	info, err := l.inspect(ctx, name)
	if err != nil {
		return locker.Info{}, fmt.Errorf("local: inspect %q: %w", name, err)
	}
	return info, nil
}

func (l *Locker) inspect(ctx context.Context, name string) (info locker.Info, err error) {
	if ctx.Err() != nil {
		return info, context.Cause(ctx)
	}
	info.Name = name
	f, err := openFile(l.path(name), name)
	if errors.Is(err, fs.ErrNotExist) {
		return info, nil
	}
	if err != nil {
		return info, unavailable(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	if info.Held, err = isLocked(f.File); err != nil {
		return info, unavailable(err)
	}
	if info.Waiters, err = countWaiters(f.File, mostCounted); err != nil {
		return info, unavailable(err)
	}
	last, err := f.glance()
	if err != nil {
		return info, unavailable(err)
	}
	info.Token = last.token
	if info.Held {
		info.Holder = last.holder
	}
	return info, nil
}

// mostCounted bounds how many waiters Inspect counts.
const mostCounted = 10_000

// glance reads the newest grant without having the lock. A grant that is
// written while we read can look like damage, so it looks again a few times.
func (f *file) glance() (last grant, err error) {
	for range 5 {
		if last, _, err = f.newest(); err == nil {
			break
		}
	}
	return last, err
}
