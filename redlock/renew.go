package redlock

import (
	"context"
	"errors"
	"fmt"

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
	own, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), shortest/6, errSlow)
	context.AfterFunc(own, cancel)
	answers := make(chan renewal, len(s.nodes))
	under := s.renewals(attempts)
	for node, r := range under {
		s.locks.Go(func() { answers <- s.renewOn(own, node, r, attempts) })
	}
	b := newBallot(s, attempts, under)
	for range under {
		if b.decided() {
			break
		}
		select {
		case r := <-answers:
			b.add(r)
		case <-ctx.Done():
			return b.errors(context.Cause(ctx))
		}
	}
	return b.errors(nil)
}

// renewals returns for each node which attempts it may hold.
func (s *store) renewals(attempts []*attempt) [][]int {
	of := make([][]int, len(s.nodes))
	for k, a := range attempts {
		for node := range a.seats {
			if a.seats[node].mayHold() {
				of[node] = append(of[node], k)
			}
		}
	}
	return of
}

func (s *store) renewOn(ctx context.Context, node int, of []int, attempts []*attempt) renewal {
	if len(of) == 0 {
		return renewal{node: node}
	}
	leases := make([]*redisnode.Lease, len(of))
	for i, k := range of {
		leases[i] = &attempts[k].seats[node].lease
	}
	return renewal{node, of, s.nodes[node].redis.Renew(ctx, leases)}
}

// ballot counts renewals.
type ballot struct {
	s        *store
	attempts []*attempt
	yes      []int // nodes that have renewed each attempt
	maybe    []int // nodes that have, or have not answered
	lost     []*locker.LostError
	failed   []*QuorumError
}

func newBallot(s *store, attempts []*attempt, under [][]int) *ballot {
	n := len(attempts)
	b := &ballot{s, attempts, make([]int, n), make([]int, n), make([]*locker.LostError, n), make([]*QuorumError, n)}
	for _, of := range under {
		for _, k := range of {
			b.maybe[k]++
		}
	}
	return b
}

func (b *ballot) add(r renewal) {
	for i, k := range r.of {
		err := r.errs[i]
		if err == nil {
			b.yes[k]++
			continue
		}
		b.maybe[k]--
		var lost *locker.LostError
		if errors.As(err, &lost) {
			if b.lost[k] == nil || lost.Reason == locker.Forced {
				b.lost[k] = lost
			}
			continue
		}
		if b.failed[k] == nil {
			b.failed[k] = &QuorumError{Need: b.s.quorum, kind: locker.ErrUnavailable}
		}
		b.failed[k].Nodes = append(b.failed[k].Nodes, NodeOutcome{Node: b.s.nodes[r.node].name, Err: err})
	}
}

// decided reports whether every attempt has a majority, or cannot get one.
func (b *ballot) decided() bool {
	for k := range b.attempts {
		if b.yes[k] < b.s.quorum && b.maybe[k] >= b.s.quorum {
			return false
		}
	}
	return true
}

// errors says of each attempt how it went. It is lost if nodes that have it no
// more are the reason why there is no majority; where others did not answer, the
// next renewal may find one. What is not decided yet has the error early.
func (b *ballot) errors(early error) []error {
	errs := make([]error, len(b.attempts))
	for k := range b.attempts {
		switch {
		case b.yes[k] >= b.s.quorum:
		case b.maybe[k] >= b.s.quorum:
			errs[k] = fmt.Errorf("%w: %w", locker.ErrUnavailable, early)
		case b.failed[k] != nil:
			errs[k] = b.failed[k]
		case b.lost[k] != nil:
			errs[k] = &locker.LostError{Name: b.attempts[k].req().Name, Reason: b.lost[k].Reason}
		default:
			errs[k] = &QuorumError{Need: b.s.quorum, kind: locker.ErrUnavailable}
		}
	}
	return errs
}
