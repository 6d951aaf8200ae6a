package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Release implements [driver.Store]. It returns when a majority has confirmed, or at
// the end of ctx. The other nodes are cleared in the background. With keep, a majority must
// keep the lock: that a majority does not have it is not enough, for what the others would
// keep is no majority.
func (s *store) Release(ctx context.Context, a *attempt, keep time.Duration) error {
	a.end()
	until := driver.Instant(0)
	if keep > 0 {
		until = driver.Now().Add(keep)
	}
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
			replies <- reply{i, s.nodes[i].release(p, until)}
			if p.left() && p.stage.CompareAndSwap(over, clearing) {
				s.clear(i, p, until)
				p.stage.CompareAndSwap(clearing, over)
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
		switch d, reason := tally(answers); {
		case d == yes, d == free && keep == 0:
			return nil
		case d == no:
			return &locker.LostError{Reason: reason}
		}
	}
	return s.disagreement(answers)
}
