package redlock

import (
	"context"
	"slices"
	"time"
)

// cleanUp is the clean-up of an attempt.
type cleanUp struct {
	results chan bool // one for each node: whether it is known that nothing is left there
	ended   int       // results so far
	clean   int       // nodes of which that is known
}

// Withdraw implements [driver.Store]. It is confirmed as soon as it is certain that
// what the others may still have blocks no majority; they are asked behind the
// caller's back.
func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	if a.cleanUp == nil {
		a.cleanUp = s.startCleanUp(a)
	}
	c := a.cleanUp
	var enough <-chan time.Time // others may be a moment later
	for c.ended < len(a.seats) {
		select {
		case ok := <-c.results:
			c.ended++
			if ok {
				c.clean++
			}
		case <-enough:
			return nil
		case <-ctx.Done():
			if c.clean >= s.quorum {
				return nil
			}
			return context.Cause(ctx)
		}
		if c.clean >= s.quorum && enough == nil {
			enough = time.After(straggling)
		}
	}
	if c.clean < s.quorum {
		return errSlow
	}
	return nil
}

func (s *store) startCleanUp(a *attempt) *cleanUp {
	a.end()
	c := &cleanUp{results: make(chan bool, len(a.seats))}
	for i := range a.seats {
		s.locks.Go(func() {
			clean := s.clear(i, &a.seats[i])
			for _, seats := range a.former {
				clean = s.clear(i, &seats[i]) && clean
			}
			c.results <- clean
		})
	}
	return c
}

// end has what still waits for a connection give up.
func (a *attempt) end() {
	for i := range a.seats {
		a.seats[i].end()
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
	return anyLeft(a.seats) || slices.ContainsFunc(a.former, anyLeft)
}

// End implements [driver.Store].
func (s *store) End(a *attempt) {
	for i := range a.seats {
		s.nodes[i].stopListening(&a.seats[i])
	}
}
