package driver

import (
	"math"
	"time"

	"github.com/lockstile/locker"
)

// extend counts validity from since, unless it counts from a later instant already. The
// clock showed it before the request that granted or renewed the lease was sent. The
// Locker's mutex is held.
func (a *lease[H]) extend(since Instant) {
	a.since = max(a.since, since)
	a.deadline = a.req.Deadline(a.since)
	if a.lasting() {
		a.deadline = 0
	}
}

// lasting reports whether renewals only look whether the lock is still there: it has no
// lease, or depends on a session, which is renewed by itself.
func (a *lease[H]) lasting() bool {
	return a.req.Renew && (a.grant.Lasting || a.session != nil)
}

// ends is when belief ends unless the lease is renewed before, or never, and leaves out
// the session that it may depend on. The Locker's mutex is held.
func (a *lease[H]) ends() Instant {
	if most := a.turn.maxEnd; most != 0 && (a.deadline == 0 || most < a.deadline) {
		return most
	}
	return a.deadline
}

// forever is the validity left of a lease that has no end.
const forever = time.Duration(math.MaxInt64)

// left is how much validity is left, by the lease and by the session that it depends on.
// The Locker's mutex is held.
func (a *lease[H]) left(now Instant) time.Duration {
	left := forever
	if end := a.ends(); end != 0 {
		left = end.Sub(now)
	}
	if a.session != nil {
		left = min(left, a.session.left(now))
	}
	return left
}

// interval is the time between two renewals.
func (a *lease[H]) interval() time.Duration { return a.req.TTL / renewalsPerTTL }

// reason says why belief ends. The Locker's mutex is held.
func (a *lease[H]) reason() locker.Reason {
	switch {
	case a.ends() == a.turn.maxEnd:
		return locker.ReasonMaxHold
	case a.lastErr != nil:
		return locker.ReasonUnreachable
	default:
		return locker.ReasonExpired
	}
}

// expire ends a lease that has no validity left, or its session if that has none. The
// Locker's mutex is held.
func (l *Locker[H]) expire(a *lease[H], now Instant) {
	if a.session != nil && a.session.left(now) <= 0 {
		a = &a.session.lease
	}
	l.lose(a, a.reason(), a.lastErr)
}

// lose ends a lease and the turn under way. What the lease has left in the store is
// removed, while the next in line asks for another. The Locker's mutex is held.
func (l *Locker[H]) lose(a *lease[H], reason locker.Reason, cause error) {
	if a.over {
		return
	}
	l.endLease(a)
	a.lost = true
	a.endTurns(reason, cause)
	switch {
	case a.self != nil:
		a.self.loseLocks(reason, cause)
	case !a.beside():
		l.advance(a.line)
	}
	l.cleanUp(a)
}
