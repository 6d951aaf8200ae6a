package driver

import (
	"context"

	"github.com/lockstile/locker/internal/chores"
)

// Go runs f in the background, for a Store: Close waits for it.
func (l *Locker[H]) Go(f func()) { l.chores.Go(f) }

// UnderWay counts what Go runs, and the clean-ups.
func (l *Locker[H]) UnderWay() int { return l.chores.Len() }

// Closing ends with Close.
func (l *Locker[H]) Closing() context.Context { return l.closing }

// cleanUp removes what a lease has left in the store, in the background. It is one
// of the lease's uses. Two of them come one after the other.
func (l *Locker[H]) cleanUp(a *lease[H]) {
	if a.cleaning.Add(1) > 1 {
		return // who cleans up already sees to it
	}
	l.chores.Go(func() {
		for n := a.cleaning.Load(); n > 0; {
			if !l.goesWithSession(a) {
				l.withdraw(a.h)
			}
			left := a.cleaning.Add(-n)
			for range n {
				l.done(a)
			}
			n = left
		}
	})
}

// goesWithSession reports whether a lease hangs on a session that has ended. What is
// left of it goes with what is left of that, which is one request and not ten thousand.
func (l *Locker[H]) goesWithSession(a *lease[H]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return a.hub != nil && a.hub.over
}

// done ends one use of a lease. After the last one the store forgets it.
func (l *Locker[H]) done(a *lease[H]) {
	l.mu.Lock()
	a.uses--
	last := a.uses == 0
	l.mu.Unlock()
	if last {
		l.store.End(a.h)
	}
}

// withdraw removes what h has left in the store, and reports whether that was
// confirmed.
func (l *Locker[H]) withdraw(h H) bool {
	return !l.store.Left(h) || l.Persist(func(ctx context.Context) error { return l.store.Withdraw(ctx, h) })
}

// Persist calls f, with a second's time, until it returns nil, for ten seconds at
// most, and reports whether it did. When the Locker has been closed it is called once
// more.
func (l *Locker[H]) Persist(f func(ctx context.Context) error) bool {
	return chores.Persist(l.closing, f)
}
