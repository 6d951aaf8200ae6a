package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/lockstile/locker/driver"
)

// cleanUpTime is how long a clean-up waits for a connection.
const cleanUpTime = 10 * time.Second

// cleanUp is the clean-up of an attempt.
type cleanUp struct {
	results chan bool // one for each node: whether it is known that nothing is left there
	ended   int       // results so far
	clean   int       // nodes of which that is known
}

// Withdraw implements [driver.Store]. It returns nil soon after a majority of nodes is
// known to have nothing left: the others cannot block a majority. They are cleared in
// the background.
func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	if a.cleanUp == nil {
		a.cleanUp = s.startCleanUp(a)
	}
	c := a.cleanUp
	var enough <-chan time.Time // others may be a moment later
	for c.ended < len(a.parts) {
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
	c := &cleanUp{results: make(chan bool, len(a.parts))}
	for i := range a.parts {
		s.locks.Go(func() {
			clean := s.clear(i, &a.parts[i], 0)
			for _, parts := range a.former {
				clean = s.clear(i, &parts[i], 0) && clean
			}
			c.results <- clean
		})
	}
	return c
}

// end has requests that still wait for a connection give up.
func (a *attempt) end() {
	for i := range a.parts {
		a.parts[i].end()
	}
}

// clear removes what an attempt has left at a node, or has the node keep it until then, and
// reports whether that was confirmed.
//
// It waits for a connection like every request. A request that is given up while it waits
// in the client's own pool is sent all the same: tries for many locks would pile up there.
func (s *store) clear(node int, p *part, until driver.Instant) bool {
	n := s.nodes[node]
	if err := n.awaitConn(cleanUpTime); err != nil {
		return false
	}
	defer func() { <-n.conns }()
	return s.locks.Persist(func(ctx context.Context) error { return n.withdraw(ctx, p, until) })
}

// left reports whether a node may have anything of the attempt.
func (a *attempt) left() bool {
	return anyLeft(a.parts) || slices.ContainsFunc(a.former, anyLeft)
}

// End implements [driver.Store].
func (s *store) End(a *attempt) {
	for i := range a.parts {
		s.nodes[i].stopListening(&a.parts[i])
	}
}
