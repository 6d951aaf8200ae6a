package local

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/lockdir"
)

const (
	// claimTime is how long TryLock leaves a free lock to those who wait for it.
	claimTime = 250 * time.Millisecond
	// decideTime is how long TryLock waits for others to decide who gets the lock, one after
	// another, where there is room. Each may wait for a slow disk.
	decideTime = 10 * time.Second
)

// promised is what the package doc says, as data. Tokens depend on the clock because
// files get deleted, and the whole directory with a reboot if it is in memory.
var promised = locker.Guarantees{Tokens: locker.ForwardClock, FreedBy: locker.FreedByProcess, Shared: byteRanges, Slots: byteRanges}

// store is the [driver.Store]: a directory.
type store struct {
	dir     string
	given   atomic.Uint64 // locks that were given back
	waiting atomic.Int64  // attempts that wait

	busy     chan struct{} // has one entry for each call that waits for the disk
	breaking chan struct{} // has one entry while a lock is being broken
}

// attempt is one attempt at a name, and the hold that comes of it.
type attempt struct {
	req   *driver.Request
	file  *file  // the last that was opened
	given uint64 // the store's, when the attempt began or late was last asked

	claim  time.Time // until then it leaves a free lock to those who are ahead
	passed bool      // somebody has had it alone meanwhile: no writer is ahead any more

	gone <-chan struct{} // closed when the disk is done with a file that the attempt did not wait for
}

func (s *store) Guarantees() locker.Guarantees { return promised }

func (s *store) path(name string) string { return filepath.Join(s.dir, lockdir.FileName(name)) }

func (s *store) Begin(req *driver.Request) (*attempt, error) {
	return &attempt{req: req, given: s.given.Load()}, nil
}

// Acquire looks once, or with a wait every few milliseconds. An error of the file system
// ends a wait.
func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	grant, err := s.acquire(ctx, a, wait)
	if grant.Count == 0 && a.open() {
		_ = a.file.drop() // it has no lock to give back
	}
	return grant, driver.UnsureIf(a.open() || a.gone != nil), err // Withdraw closes a file, also one that somebody has replaced
}

func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	began := time.Now()
	a.claim, a.passed = began.Add(claimTime), false
	if wait != nil {
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
	}
	for first := true; ; first = false {
		polite := first || wait == nil && a.claims() || a.yields()
		grant, awaited, err := s.look(ctx, a, polite)
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, locker.ErrMismatch)):
			return driver.Grant{}, err
		case err != nil:
			return driver.Grant{}, driver.Refused(err)
		case grant.Count > 0 || wait == nil && (!awaited || !polite && time.Since(began) > decideTime):
			return grant, nil
		case wait != nil:
			ctx = wait()
			if err := a.file.showWaiting(a.req); err != nil {
				return driver.Grant{}, driver.Refused(err)
			}
		}
		if err := pause(ctx, int(s.waiting.Load())+a.file.listed); err != nil {
			if wait == nil {
				err = nil // others wait for it, or decide: it is taken
			}
			return driver.Grant{}, err
		}
	}
}

// claims reports whether those who are ahead may still claim a free lock. Then they are
// paused.
func (a *attempt) claims() bool { return time.Now().Before(a.claim) }

// yields reports whether a, which waits, leaves the lock to writers. A reader does, or they
// would never find it free, until one of them has had it. Then this reader and the next
// writer have the same chance.
func (a *attempt) yields() bool {
	return a.req.Kind == locker.KindShared && !a.passed && a.claims()
}

// pause waits between two looks, for a random time, so that each waiter has its chance. Where
// there are many things to look at, names or places, it is longer, or looking would
// take a whole processor. It is shorter than claimTime.
func pause(ctx context.Context, many int) error {
	timer := time.NewTimer((time.Millisecond + rand.N(3*time.Millisecond)) * time.Duration(1+min(many/32, 31)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// look looks once, at the file that is there now. If polite, it leaves the lock to
// others who wait for it. If awaited, the lock may be free, but was not ours to take.
func (s *store) look(ctx context.Context, a *attempt, polite bool) (grant driver.Grant, awaited bool, err error) {
	grant, awaited, err = s.lookAt(ctx, a, polite)
	if !a.open() {
		return grant, awaited, err // there is no file, or the disk still has it
	}
	if err == nil || errors.Is(err, locker.ErrMismatch) {
		err = cmp.Or(a.file.lost(), err) // the second look: see replace
	}
	if errors.Is(err, locker.ErrLost) {
		// Somebody broke the lock or deleted its file meanwhile. A token that was drawn
		// from the old file is returned to nobody.
		return driver.Grant{}, true, a.file.drop()
	}
	return grant, awaited, err
}

// lookAt looks at the attempt's file, and opens it first if it is not open.
func (s *store) lookAt(ctx context.Context, a *attempt, polite bool) (grant driver.Grant, awaited bool, err error) {
	since := driver.Now() // before the file is made, which may take a while to be durable
	if !a.open() {
		if a.file, err = s.open(ctx, a.req.Name); err != nil {
			return grant, false, err
		}
	}
	if polite {
		if others, err := s.others(a); err != nil || others {
			locked, failed := a.standing()
			return grant, !locked, cmp.Or(err, failed)
		}
	}
	ok, alone, err := a.file.take(a.req)
	switch {
	case errors.Is(err, errTurn):
		return grant, true, nil
	case alone && a.req.Kind == locker.KindSlots:
		err = driver.Mismatch(a.req, locker.KindExclusive, 0)
	}
	a.passed = a.passed || alone
	if err != nil || !ok {
		return grant, false, err
	}
	if err := a.file.lost(); err != nil {
		return grant, false, err // the first look: nothing is written to a file that is gone
	}
	r, err := s.draw(ctx, a)
	return driver.Grant{First: uint64(r.first()), Count: r.count, Slot: r.slot, Since: since, Lasting: true}, false, err
}

// open opens the file of a lock, and makes it if there is none.
func (s *store) open(ctx context.Context, name string) (*file, error) {
	f, err := openFile(s.path(name), name)
	if f == nil && err == nil {
		f, _, err = within(ctx, s.busy, func() (*file, error) { return openOrCreate(s.path(name), name) }, func(f *file) { _ = f.drop() })
	}
	return f, err
}

// draw draws tokens. If ctx ends before they are on the disk, the file is dropped when they are.
func (s *store) draw(ctx context.Context, a *attempt) (grant, error) {
	f := a.file
	g, gone, err := within(ctx, s.busy, func() (grant, error) { return f.draw(a.req) }, func(grant) { _ = f.drop() })
	if gone != nil {
		a.file, a.gone = nil, gone
	}
	return g, err
}

// standing reports whether others have the lock, or are being granted it, so that waiters cannot have it
// either. It also notes what that means for a reader. It counts without the turn, so a TryLock beside
// waiters may be told "taken" one slot too early.
func (a *attempt) standing() (locked bool, err error) {
	locked, alone, err := a.file.decides()
	if !alone && err == nil && (!locked || a.req.Kind == locker.KindSlots) { // who decides takes one slot
		locked, err = a.file.full(a.req)
	}
	if locked {
		a.claim = time.Now().Add(claimTime)
	}
	a.passed = a.passed || alone
	return locked, err
}

// others reports whether other processes wait for the lock, or may do so.
func (s *store) others(a *attempt) (bool, error) {
	if !byteRanges {
		return s.late(a), nil
	}
	return a.file.ahead(a.req)
}

// late reports, once, whether this store has given a lock back since the attempt began:
// then the attempt may have stood in line for that lock, and be here before any other
// process looks.
func (s *store) late(a *attempt) bool {
	before := a.given
	a.given = s.given.Load()
	return a.given != before
}

// Renew looks whether the files are still there. It reads only what never changes in a
// file: the lock may be given back meanwhile.
func (s *store) Renew(_ context.Context, as []*attempt) []error {
	errs := make([]error, len(as))
	for i, a := range as {
		errs[i] = a.file.lost()
	}
	return errs
}

// Release closes the file. Whatever it returns, we no longer have the lock.
func (s *store) Release(_ context.Context, a *attempt, _ time.Duration) error {
	s.given.Add(1)
	return cmp.Or(a.file.lost(), a.file.drop())
}

func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	if a.open() {
		_ = a.file.drop() // closed in any case
	}
	if a.gone == nil {
		return nil
	}
	select {
	case <-a.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *attempt) open() bool { return a.file != nil && !a.file.closed }
