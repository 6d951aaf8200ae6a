package driver

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
)

// keep is how long the store is to keep the lock of a turn that has ended, for the rest of
// its WithMinHold.
func (l *Locker[H]) keep(t *turn[H]) time.Duration {
	if t.minEnd == 0 || !l.Guarantees().KeepsMinHold {
		return 0
	}
	return max(t.minEnd.Sub(l.now()), 0)
}

// stay keeps a lock whose turn has ended, and has WithMinHold left, where the store
// cannot: the lease stays in its line, and is renewed and ends like one that is held. It
// reports whether there was anything left. The Locker's mutex is held.
func (l *Locker[H]) stay(t *turn[H]) bool {
	if t.minEnd == 0 || l.Guarantees().KeepsMinHold || l.now() >= t.minEnd {
		return false
	}
	t.lease.limit = t.minEnd
	l.watch(&t.lease.renewed)
	return true
}

// clear implements owner.
func (a *lease[H]) clear() (confirmed bool) {
	began := a.locker.now()
	confirmed = a.remove()
	a.locker.reportCleanUp(a.ended, began, confirmed)
	return confirmed
}

// remove removes what a lease has left in the store, or has the store keep it for the rest of its
// WithMinHold, and reports whether the store has confirmed it. If the store answers neither for
// that long, its own lease ends the lock: a Withdraw that worked after all would free it early.
func (a *lease[H]) remove() (confirmed bool) {
	l, t, kept := a.locker, a.turn, false
	if l.keep(t) > 0 {
		kept = l.Persist(func(ctx context.Context) error {
			err := l.store.Release(ctx, a.h, l.keep(t))
			if _, lost := errors.AsType[*locker.LostError](err); lost {
				return nil
			}
			return err
		})
	}
	if l.keep(t) == 0 {
		return l.withdraw(a.h)
	}
	return kept
}
