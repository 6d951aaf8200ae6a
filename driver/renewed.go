package driver

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
)

// renewed is what the store keeps for a TTL and the Locker renews: a lease, or a session. What may
// change is guarded by the Locker's mutex.
type renewed[H any] struct {
	locker  *Locker[H]
	what    owner[H] // the lease or the session that it is
	ttl     time.Duration
	renews  bool        // by itself
	lasting bool        // renewals only look whether it is there
	session *session[H] // that it depends on, or nil

	uses     int          // turns, renewals and clean-ups that may still call the store
	cleaning atomic.Int32 // clean-ups that were asked for and have not ended
	over     bool         // given back, or lost
	lost     bool
	doubt
	since    Instant // validity counts from here: before the grant, or the last renewal that worked
	deadline Instant // the end of validity, or never
	limit    Instant // the end of WithMaxHold, or never
	due      Instant // when it ends or is renewed, or never
	index    int     // in the schedule, -1 outside
	renewing bool    // a renewal by the Locker is under way
	lastErr  error   // of the last renewal
}

// owner is a lease or a session. The Locker's mutex is held, but for clear and finish.
type owner[H any] interface {
	lose(reason locker.Reason, cause error) // and what depends on it
	turns() []*turn[H]                      // whose holders hear of its renewals
	clear() (confirmed bool)                // removes what is left of it in the store
	finish()                                // the store is not asked for it any more
}

// extend counts validity from since, unless it counts from a later instant already. The
// clock showed it before the request that granted or renewed the lease was sent. The
// Locker's mutex is held.
func (r *renewed[H]) extend(since Instant) {
	r.since = max(r.since, since)
	r.deadline = 0
	if !r.lasting {
		r.deadline = endOf(r.since, r.ttl)
	}
}

// ends is when belief ends unless there is a renewal before, or never, and leaves out
// the session that it may depend on. The Locker's mutex is held.
func (r *renewed[H]) ends() Instant {
	if r.limit != 0 && (r.deadline == 0 || r.limit < r.deadline) {
		return r.limit
	}
	return r.deadline
}

// forever is the validity left of a lease that has no end.
const forever = time.Duration(math.MaxInt64)

// left is how much validity is left, by itself and by the session that it depends on.
// The Locker's mutex is held.
func (r *renewed[H]) left(now Instant) time.Duration {
	left := forever
	if end := r.ends(); end != 0 {
		left = end.Sub(now)
	}
	if r.session != nil {
		left = min(left, r.session.left(now))
	}
	return left
}

// interval is the time between two renewals.
func (r *renewed[H]) interval() time.Duration { return r.ttl / renewalsPerTTL }

// reason says why belief ends. The Locker's mutex is held.
func (r *renewed[H]) reason() locker.Reason {
	switch {
	case r.ends() == r.limit:
		return locker.ReasonMaxHold
	case r.lastErr != nil:
		return locker.ReasonUnreachable
	default:
		return locker.ReasonExpired
	}
}

// expire ends what has no validity left, or its session if that has none. The
// Locker's mutex is held.
func (l *Locker[H]) expire(r *renewed[H], now Instant) {
	if r.session != nil && r.session.left(now) <= 0 {
		r = &r.session.renewed
	}
	if r.left(now) <= 0 {
		l.lose(r, r.reason(), r.lastErr)
	}
}

// lose ends a lease and its turns, or a session and its leases. What is left in the store is
// removed, while the next in line asks for another. The Locker's mutex is held.
func (l *Locker[H]) lose(r *renewed[H], reason locker.Reason, cause error) {
	if r.over {
		return
	}
	r.lost = true
	l.end(r)
	r.what.lose(reason, cause)
	l.cleanUp(r)
}

// end has it renewed no more. The Locker's mutex is held.
func (l *Locker[H]) end(r *renewed[H]) {
	r.over = true
	l.schedule.remove(r)
}

// done ends one use. After the last one the store is not asked any more.
func (l *Locker[H]) done(r *renewed[H]) {
	l.mu.Lock()
	r.uses--
	last := r.uses == 0
	l.mu.Unlock()
	if last {
		r.what.finish()
	}
}

// cleanUp removes what is left in the store, in the background. The caller has counted it as
// a use. A clean-up that is asked for while one is under way is left to that one, which goes
// round again.
func (l *Locker[H]) cleanUp(r *renewed[H]) {
	if r.cleaning.Add(1) > 1 {
		return
	}
	l.background.run(func() {
		for n := r.cleaning.Load(); n > 0; {
			if left := l.takeDoubt(r); left.any() && !r.what.clear() {
				l.giveDoubt(r, left)
			}
			left := r.cleaning.Add(-n)
			for range n {
				l.done(r)
			}
			n = left
		}
	})
}

// doubt is what an attempt, or a session, may have in the store.
type doubt struct {
	unsure bool // a request that was not answered may have been carried out, or may yet be; or there is a place in a queue
	there  bool // it was granted, and was not given back
}

func (d doubt) any() bool { return d.unsure || d.there }

// takeDoubt returns what a clean-up is to remove: nothing if the store frees it with a session
// that has ended, by one request and not by ten thousand. It forgets that before the clean-up
// begins: a renewal that works meanwhile puts something there again.
func (l *Locker[H]) takeDoubt(r *renewed[H]) doubt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.session != nil && r.session.frees() {
		return doubt{}
	}
	left := r.doubt
	r.doubt = doubt{}
	return left
}

// giveDoubt notes what a clean-up could not remove.
func (l *Locker[H]) giveDoubt(r *renewed[H], left doubt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.unsure, r.there = r.unsure || left.unsure, r.there || left.there
}

// withdraw removes what h has left in the store, and reports whether the store has
// confirmed it.
func (l *Locker[H]) withdraw(h H) bool {
	return l.Persist(func(ctx context.Context) error { return l.store.Withdraw(ctx, h) })
}
