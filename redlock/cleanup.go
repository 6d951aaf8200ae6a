package redlock

import (
	"context"
	"time"
)

// Withdraw implements [driver.Store]. It is confirmed as soon as it is certain that
// what the others may still have blocks no majority; they are asked behind the
// caller's back.
func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	a.tidying.Do(func() {
		a.end()
		a.tidied = make(chan bool, len(a.seats))
		for i, t := range a.seats {
			s.locks.Go(func() { a.tidied <- s.clear(i, t) })
		}
	})
	var enough <-chan time.Time // others may be a moment later
	for a.swept < len(a.seats) {
		select {
		case ok := <-a.tidied:
			a.swept++
			if ok {
				a.clean++
			}
		case <-enough:
			return nil
		case <-ctx.Done():
			if a.clean >= s.quorum {
				return nil
			}
			return context.Cause(ctx)
		}
		if a.clean >= s.quorum && enough == nil {
			enough = time.After(straggling)
		}
	}
	if a.clean < s.quorum {
		return errSlow
	}
	return nil
}

// end has what still waits for a connection give up.
func (a *attempt) end() {
	for _, t := range a.seats {
		t.over.Store(true)
	}
}

// clear removes what an attempt has left at a node, and reports whether that was
// confirmed.
//
// It waits for a connection like every request. What is given up in the client's own
// pool is sent all the same, so the tries for many locks would heap up there.
func (s *store) clear(node int, t *seat) bool {
	n := s.nodes[node]
	if err := n.enter(sweepTime); err != nil {
		return false
	}
	defer func() { <-n.slots }()
	return s.locks.Persist(func(ctx context.Context) error { return n.sweep(ctx, t) })
}

// Left implements [driver.Store].
func (s *store) Left(a *attempt) bool {
	for _, t := range a.seats {
		if t.left() {
			return true
		}
	}
	return false
}

// End implements [driver.Store].
func (s *store) End(a *attempt) {
	for i, t := range a.seats {
		if t.busy.TryLock() { // else what is under way there ends it
			s.nodes[i].stopListening(t)
			t.busy.Unlock()
		}
	}
}
