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
)

// claimTime is how long TryLock leaves a free lock to those who wait for it.
const claimTime = 250 * time.Millisecond

// promised is what the package doc says, as data. Tokens lean on the clock because
// files get deleted, and the whole directory with a reboot if it is in memory.
var promised = locker.Guarantees{Tokens: locker.ForwardClock, Release: locker.ByProcess, Shared: byteRanges, Slots: byteRanges}

// store is the [driver.Store]: a directory.
type store struct {
	dir   string
	given atomic.Uint64 // locks that were given back
}

// attempt is one attempt at a name, and the hold that comes of it.
type attempt struct {
	req   *locker.Request
	file  *file  // the last that was opened
	given uint64 // the store's, when the attempt began or late was last asked

	claim  time.Time // until then it leaves a free lock to those who are ahead
	passed bool      // somebody has had it alone meanwhile: no writer is ahead any more
}

func (s *store) Guarantees() locker.Guarantees { return promised }

func (s *store) path(name string) string { return filepath.Join(s.dir, fileName(name)) }

func (s *store) Begin(req *locker.Request) (*attempt, error) {
	return &attempt{req: req, given: s.given.Load()}, nil
}

// Acquire looks once, or with a wait every few milliseconds. An error of the file system
// ends a wait.
func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	grant, err := s.acquire(ctx, a, wait)
	if grant.Count == 0 && s.Left(a) {
		_ = a.file.drop() // it has no lock to give back
	}
	return grant, err
}

func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	a.claim, a.passed = time.Now().Add(claimTime), false
	for first := true; ; first = false {
		polite := first || wait == nil && a.claims() || a.yields()
		grant, awaited, err := s.look(a, polite)
		switch {
		case errors.Is(err, locker.ErrMismatch):
			return driver.Grant{}, err
		case err != nil:
			return driver.Grant{}, driver.Refused(err)
		case grant.Count > 0 || wait == nil && (!awaited || !polite && !a.claims()):
			return grant, nil
		case wait != nil:
			ctx = wait()
			if err := a.file.showWaiting(a.req); err != nil {
				return driver.Grant{}, driver.Refused(err)
			}
		}
		if err := pause(ctx); err != nil {
			if wait == nil {
				err = nil // others wait for it: it is taken
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
	return a.req.Kind == locker.Shared && !a.passed && a.claims()
}

// pause waits between two looks, for a random time, so that each waiter has its chance.
func pause(ctx context.Context) error {
	timer := time.NewTimer(time.Millisecond + rand.N(3*time.Millisecond))
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
func (s *store) look(a *attempt, polite bool) (grant driver.Grant, awaited bool, err error) {
	grant, awaited, err = s.lookAt(a, polite)
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

// lookAt looks at the attempt's file, which it opens if it is not.
func (s *store) lookAt(a *attempt, polite bool) (grant driver.Grant, awaited bool, err error) {
	since := locker.Now() // before the file is made, which may take a while to be durable
	if !s.Left(a) {
		if a.file, err = openOrCreate(s.path(a.req.Name), a.req.Name); err != nil {
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
	case alone && a.req.Kind == locker.Slots:
		err = driver.Mismatch(a.req, locker.Exclusive, 0)
	}
	a.passed = a.passed || alone
	if err != nil || !ok {
		return grant, false, err
	}
	if err := a.file.lost(); err != nil {
		return grant, false, err // the first look: nothing is written to a file that is gone
	}
	r, err := a.file.draw(a.req)
	return driver.Grant{First: uint64(r.first()), Count: r.count, Slot: r.slot, Since: since, Lasting: true}, false, err
}

// standing reports whether others have the lock, and notes what a reader makes of that.
func (a *attempt) standing() (locked bool, err error) {
	locked, alone, err := a.file.state()
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

func (s *store) Withdraw(_ context.Context, a *attempt) error {
	_ = a.file.drop() // closed in any case
	return nil
}

func (s *store) Left(a *attempt) bool { return a.file != nil && !a.file.closed }

func (s *store) End(*attempt) {}
