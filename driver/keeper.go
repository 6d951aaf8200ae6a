package driver

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockstile/locker"
)

const (
	// renewalsPerTTL is how often a lease is renewed in the course of one TTL.
	// With three, one renewal may fail and the next still has a third of the TTL
	// left.
	renewalsPerTTL = 3

	// glance bounds how late a loss is told after the machine was suspended. Go's
	// timers stand still meanwhile, so a Locker with leases looks at the clock at
	// least this often. Lock.Err looks by itself and is never late.
	glance = time.Second
)

// extend counts validity from since, if that is later than what it counts from now.
// The Locker's mutex is held.
func (a *lease[H]) extend(since locker.Instant) {
	a.since = max(a.since, since)
	a.deadline = a.req.Deadline(a.since)
	if a.lasting() {
		a.deadline = 0
	}
}

// lasting reports whether renewals only look whether the lock is still there. The
// session that it may hang on is renewed by itself.
func (a *lease[H]) lasting() bool {
	return a.req.Renew && (a.grant.Lasting || a.hub != nil)
}

// end is when belief ends unless the lease is renewed before, or never; the end of the
// session that it hangs on is another's. The Locker's mutex is held.
func (a *lease[H]) end() locker.Instant {
	if most := a.turn.maxEnd; most != 0 && (a.deadline == 0 || most < a.deadline) {
		return most
	}
	return a.deadline
}

// forever is what is left of a lease that has no end.
const forever = time.Duration(math.MaxInt64)

// left is how much validity there is, by the lease and by the session that it hangs on.
// The Locker's mutex is held.
func (a *lease[H]) left(now locker.Instant) time.Duration {
	left := forever
	if end := a.end(); end != 0 {
		left = end.Sub(now)
	}
	if a.hub != nil {
		left = min(left, a.hub.left(now))
	}
	return left
}

// interval is the time between two renewals.
func (a *lease[H]) interval() time.Duration { return a.req.TTL / renewalsPerTTL }

// reason says why belief ends. The Locker's mutex is held.
func (a *lease[H]) reason() locker.Reason {
	switch {
	case a.end() == a.turn.maxEnd:
		return locker.MaxHold
	case a.lastErr != nil:
		return locker.Unreachable
	default:
		return locker.Expired
	}
}

// expire ends a lease whose end has come, or that of its session. The Locker's mutex
// is held.
func (l *Locker[H]) expire(a *lease[H], now locker.Instant) {
	if a.hub != nil && a.hub.left(now) <= 0 {
		a = &a.hub.lease
	}
	l.lose(a, a.reason(), a.lastErr)
}

// lose ends a lease and the turn under way. The next in line asks the store, while
// what the lease has left there is removed. The Locker's mutex is held.
func (l *Locker[H]) lose(a *lease[H], reason locker.Reason, cause error) {
	if a.over {
		return
	}
	l.forget(a)
	a.turn.end(reason, cause)
	if a.session != nil {
		a.session.loseLocks(reason, cause)
	} else {
		l.advance(a.line)
	}
	l.cleanUp(a)
}

// tick ends what is over and renews what is due. It runs in a goroutine of the
// timer's: a renewal that hangs does not keep the next tick from ending leases.
func (l *Locker[H]) tick() {
	l.mu.Lock()
	now := l.now()
	l.leases.fires = 0
	batch := []*lease[H](nil)
	for a := l.leases.first(); a != nil && a.due <= now; a = l.leases.first() {
		if a.left(now) > 0 {
			batch = l.leases.batch(now)
			break
		}
		l.expire(a, now)
	}
	l.arm()
	l.mu.Unlock()
	if len(batch) > 0 {
		l.renewDue(batch)
	}
}

// arm makes the timer fire in time for the first lease. The Locker's mutex is held.
func (l *Locker[H]) arm() { l.leases.arm(l.now(), l.tick) }

// renewDue renews the leases of a batch.
func (l *Locker[H]) renewDue(batch []*lease[H]) {
	shortest := batch[0].interval()
	for _, a := range batch {
		shortest = min(shortest, a.interval())
	}
	ctx, cancel := context.WithTimeout(context.Background(), shortest)
	defer cancel()
	l.renew(ctx, batch, func(a *lease[H]) { a.renewing = false })
}

// renewNow renews a turn's lease because its holder wants it.
func (l *Locker[H]) renewNow(ctx context.Context, t *turn[H]) error {
	batch := make([]*lease[H], 0, 2) // and the session that it hangs on
	l.mu.Lock()
	err := l.look(t)
	if err == nil {
		t.lease.uses++
		batch = append(batch, t.lease)
		if hub := t.lease.hub; hub != nil {
			hub.uses++
			batch = append(batch, &hub.lease)
		}
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	err = cmp.Or(l.renew(ctx, batch, func(*lease[H]) {})...)
	if lost := t.Err(); lost != nil {
		return lost
	}
	if err != nil {
		return l.wrap("renew", t.name, unavailable(err))
	}
	return nil
}

// renew asks the store for another TTL for leases that were noted as used for it,
// and calls ended for each under the Locker's mutex before it takes note of the
// answer.
func (l *Locker[H]) renew(ctx context.Context, batch []*lease[H], ended func(*lease[H])) []error {
	hs := make([]H, len(batch))
	for i, a := range batch {
		hs[i] = a.h
	}
	since := l.now()
	errs := l.store.Renew(ctx, hs)
	if len(errs) != len(hs) {
		panic(fmt.Sprintf("%s: the renewal answered %d errors for %d locks", l.name, len(errs), len(hs)))
	}
	l.mu.Lock()
	for i, a := range batch {
		ended(a)
		l.settle(a, since, errs[i])
	}
	l.arm()
	l.mu.Unlock()
	for _, a := range batch {
		l.done(a)
	}
	return errs
}

// settle takes note of how a renewal ended. An answer that comes after the end of
// validity comes too late, also where no timer has fired yet: the holder may have
// been told, and whoever was told that it has lost must not hold again. What such a
// renewal left in the store is removed. The Locker's mutex is held.
func (l *Locker[H]) settle(a *lease[H], since locker.Instant, err error) {
	var lost *locker.LostError
	now := l.now()
	if !a.over && a.left(now) <= 0 {
		l.expire(a, now)
	}
	switch {
	case a.over:
		if err == nil && (a.session != nil || a.turn.unlocked.Reason != locker.Unlocked) {
			a.uses++
			l.cleanUp(a)
		}
	case errors.As(err, &lost):
		l.lose(a, lost.Reason, lost.Cause)
	case err != nil:
		a.lastErr = err
		l.leases.plan(a, now.Add(max(a.interval()/5, 10*time.Millisecond)))
	default:
		a.lastErr = nil
		a.extend(since)
		l.leases.plan(a, since.Add(a.interval()))
		if a.session != nil {
			l.endUnused(a.session)
		}
	}
}

// leases are those with something to do, the next first. The Locker's mutex guards
// them.
type leases[H any] struct {
	heap  leaseHeap[H]
	timer *time.Timer
	fires locker.Instant // when timer does, or never
}

func (s *leases[H]) first() *lease[H] {
	if len(s.heap) == 0 {
		return nil
	}
	return s.heap[0]
}

// plan sets when to look at a again: at its end, or at renewAt if that comes first
// and there is anything to renew.
func (s *leases[H]) plan(a *lease[H], renewAt locker.Instant) {
	a.due = a.end()
	most := a.turn.maxEnd
	pointless := most != 0 && most <= a.req.Deadline(a.since) && !a.lasting()
	if a.req.Renew && !a.renewing && !pointless && (a.due == 0 || renewAt < a.due) {
		a.due = renewAt
	}
	switch {
	case a.due == 0:
		s.remove(a)
	case a.index >= 0:
		heap.Fix(&s.heap, a.index)
	default:
		heap.Push(&s.heap, a)
	}
}

func (s *leases[H]) remove(a *lease[H]) {
	if a.index >= 0 {
		heap.Remove(&s.heap, a.index)
	}
}

// batch takes the first lease and every one like it whose last renewal is at least
// half an interval old. Renewing early costs nothing here, and after one round
// leases that were acquired at different times share a batch for good.
//
// A batch has the time that the shortest of its leases allows. So a longer one that
// was taken along again and again would be lost to a store that is slow for the
// short one only.
func (s *leases[H]) batch(now locker.Instant) []*lease[H] {
	var batch []*lease[H]
	first := s.heap[0].interval()
	for _, a := range s.heap {
		waiting := a.due != a.end() // for a renewal, and none is under way
		alike := a.interval() <= 2*first && first <= 2*a.interval()
		if waiting && alike && (a.due <= now || now.Sub(a.since) >= a.interval()/2) && a.left(now) > 0 {
			batch = append(batch, a)
		}
	}
	for _, a := range batch {
		a.renewing = true
		a.uses++
		s.plan(a, 0)
	}
	return batch
}

// arm has the timer call tick in time for the first lease. A timer that fires
// earlier is left alone, so that short-lived locks do not touch it at all. One that
// should have fired by now is not: the machine was suspended, and it stood still
// meanwhile.
func (s *leases[H]) arm(now locker.Instant, tick func()) {
	first := s.first()
	if first == nil {
		return
	}
	at := min(first.due, now.Add(glance))
	if now < s.fires && s.fires <= at {
		return
	}
	s.fires = at
	if s.timer == nil {
		s.timer = time.AfterFunc(at.Sub(now), tick)
		return
	}
	s.timer.Reset(at.Sub(now))
}

// leaseHeap is a heap.Interface, ordered by due.
type leaseHeap[H any] []*lease[H]

func (h leaseHeap[H]) Len() int           { return len(h) }
func (h leaseHeap[H]) Less(i, j int) bool { return h[i].due < h[j].due }

func (h leaseHeap[H]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap[H]) Push(x any) {
	a := x.(*lease[H])
	a.index = len(*h)
	*h = append(*h, a)
}

func (h *leaseHeap[H]) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = -1
	return a
}
