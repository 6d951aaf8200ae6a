package driver

import (
	"container/heap"
	"time"
)

// longestSleep bounds how late a loss is reported after the machine was suspended. Go's
// timers stand still meanwhile, so a Locker with leases looks at the clock at least this
// often. Lock.Err looks by itself and is never late.
const longestSleep = time.Second

// schedule is the leases that end or are to be renewed, the next one first, and the one
// timer for all of them. The Locker's mutex guards it.
type schedule[H any] struct {
	heap  renewals[H]
	timer *time.Timer
	fires Instant // when timer does, or never
}

func (s *schedule[H]) first() *renewed[H] {
	if len(s.heap) == 0 {
		return nil
	}
	return s.heap[0]
}

// plan sets when to look at a again: at its end, or at renewAt if that comes first
// and there is anything to renew.
func (s *schedule[H]) plan(a *renewed[H], renewAt Instant) {
	a.due = a.ends()
	pointless := a.limit != 0 && a.limit <= endOf(a.since, a.ttl) && !a.lasting
	if a.renews && !a.renewing && !pointless && (a.due == 0 || renewAt < a.due) {
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

func (s *schedule[H]) remove(a *renewed[H]) {
	if a.index >= 0 {
		heap.Remove(&s.heap, a.index)
	}
}

// batch returns the first lease and every one like it whose last renewal is at least
// half an interval old, to be renewed together. Renewing early costs nothing here, and
// after one round leases that were acquired at different times share a batch for good.
//
// A lease is like another if its interval is at most twice as long. A batch has the time
// that its shortest lease allows: a much longer one that was in it again and again would
// be lost to a store that is too slow for the short one only.
func (s *schedule[H]) batch(now Instant) []*renewed[H] {
	var batch []*renewed[H]
	first := s.heap[0].interval()
	for _, a := range s.heap {
		plannedToRenew := a.due != a.ends() // and none is under way
		alike := a.interval() <= 2*first && first <= 2*a.interval()
		if plannedToRenew && alike && (a.due <= now || now.Sub(a.since) >= a.interval()/2) && a.left(now) > 0 {
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
// should have fired by now is set again: it stood still while the machine was
// suspended.
func (s *schedule[H]) arm(now Instant, tick func()) {
	first := s.first()
	if first == nil {
		return
	}
	at := min(first.due, now.Add(longestSleep))
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

// renewals is a heap.Interface, ordered by due.
type renewals[H any] []*renewed[H]

func (h renewals[H]) Len() int           { return len(h) }
func (h renewals[H]) Less(i, j int) bool { return h[i].due < h[j].due }

func (h renewals[H]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *renewals[H]) Push(x any) {
	a := x.(*renewed[H])
	a.index = len(*h)
	*h = append(*h, a)
}

func (h *renewals[H]) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = -1
	return a
}
