package local

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lockdir"
)

// mostCounted bounds how many waiters Inspect counts.
const mostCounted = 10_000

func (s *store) Inspect(ctx context.Context, name string) (locker.Info, error) {
	if ctx.Err() != nil {
		return locker.Info{}, context.Cause(ctx)
	}
	f, err := openFile(s.path(name), name)
	if f == nil {
		return locker.Info{}, err
	}
	defer f.Close() // nothing was written
	return f.inspect()
}

func (f *file) inspect() (info locker.Info, err error) {
	_, alone, err := f.decides()
	var others []place
	if err == nil && !alone {
		others, err = f.others(mostPlaces)
	}
	if err != nil {
		return info, err
	}
	waiters, err := f.locked(firstWaiter, lastWaiter, mostCounted)
	if err != nil {
		return info, err
	}
	last, err := f.glance()
	info.Name, info.Token, info.Waiters = last.lock, last.first(), len(waiters)
	if n, ok, err := f.drawn(last); err == nil && ok {
		info.Token = n
	}
	if alone {
		info.Held, info.Holder = true, last.holder
	}
	show(&info, others)
	return info, err
}

// show shows those who have a place.
func show(info *locker.Info, others []place) {
	for _, o := range others {
		if !o.known || o.broken {
			continue
		}
		h := locker.Holder{Text: o.holder, Number: locker.Number(o.last), Slot: o.slot}
		if o.kind == locker.KindShared {
			h.Slot = -1
		}
		info.Held, info.Kind, info.Slots = true, o.kind, o.slots
		info.Holders = append(info.Holders, h)
	}
	slices.SortFunc(info.Holders, func(a, b locker.Holder) int { return cmp.Compare(a.Number, b.Number) })
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
		if !file.Type().IsRegular() || filepath.Ext(file.Name()) != lockdir.Suffix {
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
	if f == nil { // it may have been deleted meanwhile
		return info, err
	}
	defer f.Close() // nothing was written
	if locked, _, err := f.state(); err != nil || !locked || !ours(f.info.Size()) {
		return info, err
	}
	info, err = f.inspect()
	if err == nil && (lockdir.FileName(info.Name) != file || !strings.HasPrefix(info.Name, prefix)) {
		return locker.Info{}, nil
	}
	return info, err
}
