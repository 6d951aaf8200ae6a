package local

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/lockdir"
)

// Break returns when ctx ends, though the disk has not answered.
func (s *store) Break(ctx context.Context, name string, number locker.Number) (bool, error) {
	broken, _, err := within(ctx, s.breaking, func() (bool, error) { return s.breakWhenAlone(ctx, name, number) }, func(bool) {})
	return broken, err
}

// breakWhenAlone lets one breaker of the directory at a time replace a file. Of two that read the
// same file, the later one would write a counter that is not the last.
func (s *store) breakWhenAlone(ctx context.Context, name string, number locker.Number) (bool, error) {
	breaker, err := openOrCreate(filepath.Join(s.dir, ".break"), "") // of no lock: nothing in it is read
	if err != nil {
		return false, err
	}
	defer func() { _ = breaker.drop() }()
	for {
		ok, err := lockBytes(breaker.File, turn, 1)
		if ok {
			broken, done, err := breakNow(ctx, s.path(name), name, number)
			if done || err != nil {
				return broken, err
			}
		}
		if err == nil {
			err = pause(ctx, 0)
		}
		if err != nil {
			return false, err
		}
	}
}

// breakNow breaks a lock, or the one holder who has a number. If it is not done, somebody
// is just about to take the lock, and nothing has happened.
func breakNow(ctx context.Context, path, name string, number locker.Number) (broken, done bool, err error) {
	f, err := openFile(path, name)
	if f == nil {
		return false, true, err
	}
	defer func() { _ = f.drop() }()
	locked, alone, err := f.state()
	switch {
	case err != nil:
		return false, true, err
	case !locked:
		_, err := f.glance() // it may be none of our files
		return false, true, err
	case alone || number == 0:
		broken, err = replace(ctx, f, number)
		return broken, true, err
	}
	return f.evict(number)
}

// replace puts a new file with the same counter in the place of one that is
// locked. Only one breaker of a directory is in here.
//
// An acquirer on the old file takes the kernel's lock, looks whether the file is
// still at its path (first look), writes its tokens, looks again (second look),
// and returns. A breaker renames first and reads the counter afterwards, while
// it has the turn of the new file:
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
//
// If a number is given, the exclusive holder must have it: see swap. A later holder
// whose look falls into the moment between two renames is broken all the same.
//
// A breaker looks at ctx once more when it has waited for its new file: if ctx has ended, Break has
// returned, and somebody else may have locked since. If ctx ends during the rename itself, that
// holder may be broken. A token names one holder for ever, so evict need not look.
func replace(ctx context.Context, old *file, number locker.Number) (bool, error) {
	last, err := old.glance()
	if err != nil || !last.hasNumber(number) {
		return false, err
	}
	fresh, err := newTemp(old.path, grant{lock: old.lock, last: last.last})
	if err != nil {
		return false, err
	}
	defer func() { _ = fresh.drop() }()
	if ok, err := lockBytes(fresh.File, turn, 1); err != nil || !ok { // the turn alone: others wait for a decision, and see no holder of another kind
		return false, errors.Join(cmp.Or(err, errors.New("somebody has locked its new file")), os.Remove(fresh.Name()))
	}
	if ctx.Err() != nil {
		return false, errors.Join(context.Cause(ctx), os.Remove(fresh.Name()))
	}
	last, ok, err := swap(old, fresh, number)
	if err == nil && ok {
		err = fresh.write(grant{lock: old.lock, last: last.last}, 0)
	}
	if err == nil && ok {
		err = lockdir.SyncDir(filepath.Dir(old.path))
	}
	return ok, err
}

// swap puts fresh in the place of old, and returns the last grant of old. If that does
// not have the number, it puts old back: its holder has changed meanwhile.
func swap(old, fresh *file, number locker.Number) (last grant, ok bool, err error) {
	temp, kept := fresh.Name(), fresh.Name()+"-old"
	if number != 0 {
		if err := os.Link(old.path, kept); err != nil {
			return last, false, errors.Join(err, os.Remove(temp))
		}
	}
	if err := os.Rename(temp, old.path); err != nil {
		return last, false, errors.Join(err, os.Remove(temp))
	}
	last, err = old.glance()
	switch {
	case number == 0:
		return last, true, err
	case err == nil && !last.hasNumber(number):
		return last, false, os.Rename(kept, old.path)
	}
	return last, true, errors.Join(err, os.Remove(kept))
}

// hasNumber reports whether a grant's first token is number, or any will do.
func (g grant) hasNumber(number locker.Number) bool {
	return number == 0 || locker.Number(g.first()) == number
}
