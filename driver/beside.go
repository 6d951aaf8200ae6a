package driver

import (
	"maps"
	"slices"

	"github.com/lockstile/locker"
)

// beside reports whether the lease is beside its line: it is shared, or a slot, and others may hold the lock as
// well, or it was resumed.
func (a *lease[H]) beside() bool { return a.req.Kind != locker.KindExclusive || a.resumed }

// sharedLease returns the shared lease that was granted last, if this process has one. The
// Locker's mutex is held.
func (n *line[H]) sharedLease() *lease[H] {
	if len(n.beside) == 0 {
		return nil
	}
	if a := n.beside[len(n.beside)-1]; a.req.Kind == locker.KindShared {
		return a
	}
	return nil
}

// join returns a turn for c with the shared lease that this process has, if it was granted
// just now and has what c wants, or nil. All who join it have its one number. Nobody can
// join for longer than shareTime: later readers ask the store, where a writer may wait.
// WithMaxHold would end the lease for everybody. A call WithoutRenewal does not join, for the
// Renew of another reader would keep its lock. The Locker's mutex is held.
func (l *Locker[H]) join(n *line[H], c *call[H]) *turn[H] {
	a, now := n.sharedLease(), l.now()
	if a == nil || !l.fits(a, c.req, now) || a.req.MaxHold > 0 || c.req.MaxHold > 0 || !c.req.Renew {
		return nil
	}
	t := &turn[H]{lease: a, req: c.req, token: a.turn.token}
	if a.joined == nil {
		a.joined = make(map[*turn[H]]struct{})
	}
	a.joined[t] = struct{}{}
	return t
}

// fits reports whether a lease may have another turn, for req. The Locker's mutex is held.
func (l *Locker[H]) fits(a *lease[H], req *request, now Instant) bool {
	alike := req.Kind == a.req.Kind && req.TTL == a.req.TTL && req.Renew == a.req.Renew && req.Holder == a.req.Holder
	return alike && !req.alone && !a.req.alone && !a.pinned && now.Sub(a.received) < shareTime && a.left(now) >= l.least(req)
}

// leave takes a turn that has ended out of those of its lease, and reports whether others
// are under way. The Locker's mutex is held.
func (a *lease[H]) leave(t *turn[H]) bool {
	delete(a.joined, t)
	return a.turn.err == nil || len(a.joined) > 0
}

// heldTurns returns the turns of a lease that have not ended. The Locker's mutex is held.
func (a *lease[H]) heldTurns() []*turn[H] {
	held := slices.Collect(maps.Keys(a.joined))
	if a.turn.err == nil {
		held = append(held, a.turn)
	}
	return held
}
