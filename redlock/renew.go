package redlock

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redisnode"
)

// renewal is a node's answers for the attempts that it may hold.
type renewal struct {
	node int
	of   []int // indexes of attempts
	errs []error
}

// Renew implements [driver.Store]. It starts another TTL for each attempt on all nodes
// that may hold it, one batch a node, and returns when every attempt is decided by a
// majority. A node has a sixth of the shortest TTL, half of what the driver allows.
//
// The batches of slower nodes go on until their time is over, though ctx ends
// with the return: every node that renews makes the lock safer, and one that is
// always slower than the others would never be renewed.
func (s *store) Renew(ctx context.Context, attempts []*attempt) []error {
	shortest := attempts[0].req().TTL
	for _, a := range attempts {
		shortest = min(shortest, a.req().TTL)
	}
	own, _ := endingAfter(ctx, shortest/6)
	answers, onNode := s.unanswered(attempts)
	renewals := make(chan renewal, len(s.nodes))
	for node, of := range onNode {
		s.locks.Go(func() { renewals <- s.renewOn(own, node, of, attempts) })
	}
	for range onNode {
		if decided(answers) {
			break
		}
		select {
		case r := <-renewals:
			for i, k := range r.of {
				answers[k][r.node] = r.errs[i]
			}
		case <-ctx.Done():
			return s.renewed(attempts, answers, context.Cause(ctx))
		}
	}
	return s.renewed(attempts, answers, nil)
}

// unanswered returns for each attempt the answers of the nodes before any has come, and
// for each node the attempts that it may hold.
func (s *store) unanswered(attempts []*attempt) (answers [][]error, onNode [][]int) {
	answers, onNode = make([][]error, len(attempts)), make([][]int, len(s.nodes))
	for k, a := range attempts {
		answers[k] = make([]error, len(s.nodes))
		for node := range a.parts {
			answers[k][node] = errAbsent
			if a.parts[node].mayHold() {
				answers[k][node] = errPending
				onNode[node] = append(onNode[node], k)
			}
		}
	}
	return answers, onNode
}

func (s *store) renewOn(ctx context.Context, node int, of []int, attempts []*attempt) renewal {
	ofNode := make([]*redisnode.Attempt, len(of))
	for i, k := range of {
		ofNode[i] = &attempts[k].parts[node].Attempt
	}
	return renewal{node, of, s.nodes[node].redis.Renew(ctx, ofNode)}
}

// decided reports whether every attempt has a majority or cannot get one any more.
func decided(answers [][]error) bool {
	return !slices.ContainsFunc(answers, func(of []error) bool {
		d, _ := tally(of)
		return d == undecided
	})
}

// renewed returns the error of each attempt. One that is not decided yet has the error
// early.
func (s *store) renewed(attempts []*attempt, answers [][]error, early error) []error {
	errs := make([]error, len(attempts))
	for k, a := range attempts {
		switch d, reason := tally(answers[k]); d {
		case yes:
		case no:
			errs[k] = &locker.LostError{Name: a.req().Name, Reason: reason}
		case undecided:
			errs[k] = fmt.Errorf("%w: %w", s.disagreement(answers[k]), early)
		default: // the next renewal may find a majority
			errs[k] = s.disagreement(answers[k])
		}
	}
	return errs
}
