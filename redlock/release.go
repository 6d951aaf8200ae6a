package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker"
)

// result is how a release went at one node.
type result struct {
	node   int
	absent bool // the node had not been asked for the lock, or had refused it
	err    error
}

// Release implements [driver.Store]. It returns when a majority has confirmed, or at
// the end of ctx. What the others have is removed behind the caller's back.
func (s *store) Release(ctx context.Context, a *attempt, _ time.Duration) error {
	a.end()
	results := make(chan result, len(a.seats))
	for i := range a.seats {
		t := &a.seats[i]
		s.locks.Go(func() {
			absent, err := s.nodes[i].release(t)
			results <- result{i, absent, err}
			if t.left() {
				s.clear(i, t)
			}
		})
	}
	got := make([]*result, len(a.seats))
	for {
		select {
		case r := <-results:
			got[r.node] = &r
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", s.unreleased(got), context.Cause(ctx))
		}
		switch released, reason := tally(got); released {
		case yes:
			return nil
		case no:
			return &locker.LostError{Reason: reason}
		case unknown:
			return s.unreleased(got)
		}
	}
}

// answerOf is what the nodes' answers to a release come to.
type answerOf uint8

const (
	undecided answerOf = iota
	yes                // it was ours and is free
	no                 // it was not ours any more
	unknown            // too few answered
)

// tally says what the answers so far come to; a nil is one that has not come.
func tally(results []*result) (answerOf, locker.Reason) {
	released, absent, failures, left := 0, 0, 0, 0
	reason := locker.Reason(0)
	for _, r := range results {
		switch {
		case r == nil:
			left++
		case r.absent:
			absent++
		case asLost(r.err) != nil:
			absent++
			if why := asLost(r.err).Reason; reason == 0 || why == locker.Forced {
				reason = why
			}
		case r.err != nil:
			failures++
		default:
			released++
		}
	}
	need := len(results)/2 + 1
	switch {
	case released >= need:
		return yes, 0
	case reason != 0 && released+failures+left < need:
		return no, reason
	case left > 0:
		return undecided, 0
	case released+absent >= need:
		return yes, 0
	}
	return unknown, 0
}

// unreleased is the error of a release that no majority has confirmed.
func (s *store) unreleased(results []*result) *QuorumError {
	e := &QuorumError{Need: s.quorum, kind: locker.ErrUnavailable}
	for i, n := range s.nodes {
		o := NodeOutcome{Node: n.name, Err: errSlow}
		if r := results[i]; r != nil {
			o.Err, o.Granted = r.err, r.err == nil && !r.absent
		}
		e.Nodes = append(e.Nodes, o)
	}
	return e
}

// asLost returns err as the loss that it is, or nil.
func asLost(err error) *locker.LostError {
	if err == nil {
		return nil // before lost is allocated
	}
	var lost *locker.LostError
	errors.As(err, &lost)
	return lost
}
