package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstile/locker"
)

// finish makes the lock of a granted attempt, and clears away one that failed.
func (l *Locker) finish(a *attempt, err error) (*locker.Lock, error) {
	if err == nil && !a.req.Renew {
		err = a.req.CheckValidity(a.since) // others have no end of validity
	}
	if err != nil {
		_ = a.release() // what it says of the file is of no use to who does not have the lock
		return nil, fmt.Errorf("local: lock %q: %w", a.req.Name, err)
	}
	return locker.NewLock(locker.Hold{
		Request: a.req,
		Token:   a.token,
		Since:   a.since,
		Keeper:  l.keeper,
		Lease:   a,
		Lasting: true,
		Release: func(context.Context) error { return a.release() },
		Lost:    func() { _ = a.release() }, // its error would say what is known: that the lock is lost
	}), nil
}

// look is the Keeper's function: it looks whether locks are still there.
func look(_ context.Context, holds []*attempt) []error {
	errs := make([]error, len(holds))
	for i, a := range holds {
		errs[i] = a.look()
	}
	return errs
}

func (a *attempt) look() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil // unlocked meanwhile
	}
	return a.lost()
}

// lost returns a LostError if the lock is no longer there.
func (a *attempt) lost() error {
	reason, err := a.file.gone()
	if err == nil && reason != 0 {
		err = &locker.LostError{Name: a.req.Name, Reason: reason}
	}
	return err
}

// release passes the file on or drops it, once. In any case the lock is no
// longer ours then.
func (a *attempt) release() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.turn.Leave()
	if a.file == nil {
		return nil
	}
	f := a.file
	err := a.lost()
	a.file = nil
	if err == nil && f.held && a.handOver(f) {
		return nil
	}
	if err == nil {
		err = f.drop()
	} else {
		_ = f.drop() // the first error says more
	}
	var lost *locker.LostError
	if err == nil || errors.As(err, &lost) {
		return err
	}
	return fmt.Errorf("local: unlock %q: %w", a.req.Name, err)
}

// handOver leaves the file, locked as it is, to the next goroutine in line,
// which draws its own token from it. After a streak others go first, if there are
// any.
func (a *attempt) handOver(f *file) bool {
	heir, ok := a.turn.Next()
	if !ok {
		return false
	}
	if a.streak.Over() {
		waiting, err := countWaiters(f.File, 1)
		if heir.yield = err != nil || waiting > 0 || !seesWaiters; heir.yield {
			return false
		}
	}
	heir.file, heir.streak = f, a.streak.Next()
	return true
}
