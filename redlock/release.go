package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstile/locker"
)

// Release implements [driver.Store]. It returns when a majority has confirmed, or at
// the end of ctx. The other nodes are cleared in the background.
func (s *store) Release(ctx context.Context, a *attempt, _ time.Duration) error {
	a.end()
	type reply struct {
		node int
		err  error
	}
	replies := make(chan reply, len(a.parts))
	answers := make([]error, len(a.parts))
	for i := range a.parts {
		p := &a.parts[i]
		answers[i] = errPending
		s.locks.Go(func() {
			replies <- reply{i, s.nodes[i].release(p)}
			if p.left() {
				s.clear(i, p)
			}
		})
	}
	for range answers {
		select {
		case r := <-replies:
			answers[r.node] = r.err
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", s.disagreement(answers), context.Cause(ctx))
		}
		switch d, reason := tally(answers); d {
		case yes, free:
			return nil
		case no:
			return &locker.LostError{Reason: reason}
		}
	}
	return s.disagreement(answers)
}
