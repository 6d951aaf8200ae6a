package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstile/locker"
)

// Release implements [driver.Store]. It returns when a majority has confirmed, or at
// the end of ctx. What the others have is removed behind the caller's back.
func (s *store) Release(ctx context.Context, a *attempt, _ time.Duration) error {
	a.end()
	type reply struct {
		node int
		err  error
	}
	replies := make(chan reply, len(a.seats))
	answers := make([]error, len(a.seats))
	for i := range a.seats {
		t := &a.seats[i]
		answers[i] = errPending
		s.locks.Go(func() {
			replies <- reply{i, s.nodes[i].release(t)}
			if t.left() {
				s.clear(i, t)
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
