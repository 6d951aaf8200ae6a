package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/chores"
)

// release gives the lock back on all nodes, where it can to the next goroutine
// in line, and returns when a majority has confirmed, or at the end of ctx. What
// the others have is removed behind the caller's back.
func (l *Locker) release(ctx context.Context, a *attempt) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.turn.Leave()
	var heirs []seat // read here: the heir may take others once it has the turn
	heir, ok := (*attempt)(nil), false
	if !a.streak.Over() { // otherwise other processes go first, on every node
		if heir, ok = a.turn.Next(); ok {
			heirs = heir.seats
		}
	}
	since, offer := locker.Now(), time.Now().UnixMicro()
	results := make(chan result, len(a.seats))
	for i := range a.seats {
		s, next := &a.seats[i], (*seat)(nil)
		if ok {
			next = &heirs[i]
		}
		s.sent.Store(0)
		l.chores.Go(func() { l.releaseOne(s, next, i, offer, results) })
	}
	token, err := l.tally(ctx, a, results, ok)
	if token != 0 {
		heir.token, heir.since, heir.streak = token, since, a.streak.Next()
	}
	return err
}

// releasePatience bounds how long a release waits for a connection to a node that
// answers nobody, and is what a node has at least to answer one.
const releasePatience = time.Second

// result is how a release went at one node.
type result struct {
	node   int
	absent bool // the node had not been asked for the lock, or had refused it
	token  fencing.Token
	err    error
}

// releaseOne gives back what one node has. A request of ours that is still under
// way there is waited for: a late grant is given back with the rest.
func (l *Locker) releaseOne(s, heir *seat, i int, offer int64, results chan<- result) {
	slot := l.peers[i].enter(min(s.timeout, releasePatience), nil) // a release without one is sent all the same
	s.sent.Store(int64(locker.Now()))
	s.busy.Lock()
	defer s.busy.Unlock()
	l.end(i, s)
	r := result{node: i, absent: true}
	if s.mayHold() {
		r = l.handOver(s, heir, i, offer)
		s.held.Store(r.err != nil && asLost(r.err) == nil)
	}
	if slot == nil {
		l.peers[i].leave(!r.absent && r.err == nil)
	}
	results <- r
	released := !r.absent && r.err == nil
	if !released && s.left() {
		node := l.peers[i].node
		if chores.Persist(l.closing, func(ctx context.Context) error { return node.Withdraw(ctx, &s.lease) }) {
			s.held.Store(false)
		}
	}
}

// handOver releases what a node has granted, to the heir if there is one that
// still wants it.
func (l *Locker) handOver(s, heir *seat, i int, offer int64) result {
	ctx := s.brief()
	defer s.stop(ctx)
	node := l.peers[i].node
	if heir == nil {
		_, err := node.Release(ctx, &s.lease, nil, false)
		return result{node: i, err: err}
	}
	heir.busy.Lock()
	defer heir.busy.Unlock()
	if heir.over { // it was served by the other nodes, and is done already
		_, err := node.Release(ctx, &s.lease, nil, false)
		return result{node: i, err: err}
	}
	heir.lease.Offer = offer
	heir.asked.Store(true)
	token, err := node.Release(ctx, &s.lease, &heir.lease, false)
	heir.held.Store(token != 0)
	heir.asked.Store(err != nil && heir.lease.Unsure())
	return result{node: i, token: token, err: err}
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

// tally reads the nodes' answers until it is decided whether the lock was ours
// and is free, and returns the token that a majority granted to the heir, or 0.
func (l *Locker) tally(ctx context.Context, a *attempt, results <-chan result, heir bool) (fencing.Token, error) {
	var tokens map[fencing.Token]int
	released, absent, unknown := 0, 0, 0
	var lost *locker.LostError
	e := l.unanswered()
	for left := len(a.seats); left > 0; {
		r, ok := a.answer(ctx, results)
		switch {
		case !ok && released >= l.quorum:
			return 0, nil
		case !ok:
			return 0, fmt.Errorf("redlock: unlock %q: %w: %w", a.req.Name, e, context.Cause(ctx))
		}
		left--
		out := &e.Nodes[r.node]
		out.Err = r.err
		gone := asLost(r.err)
		switch {
		case r.absent:
			absent++
		case gone != nil:
			absent++
			if lost == nil || gone.Reason == locker.Forced {
				lost = gone
			}
		case r.err != nil:
			unknown++
		default:
			released++
			out.Granted = true
		}
		if r.token != 0 {
			if tokens == nil {
				tokens = make(map[fencing.Token]int)
			}
			tokens[r.token]++
			if tokens[r.token] >= l.quorum {
				return r.token, nil
			}
		}
		switch {
		case released >= l.quorum && (!heir || best(tokens)+left < l.quorum):
			return 0, nil
		case lost != nil && released+unknown+left < l.quorum:
			return 0, &locker.LostError{Name: a.req.Name, Reason: lost.Reason}
		}
	}
	if released+absent >= l.quorum {
		return 0, nil
	}
	return 0, fmt.Errorf("redlock: unlock %q: %w", a.req.Name, e)
}

// answer waits for the next node's answer to a release, or for the end of ctx:
// a node may be allowed more time than that. Where requests have waited for a
// connection of this process, as in enter, it is not the nodes that are silent.
func (a *attempt) answer(ctx context.Context, results <-chan result) (r result, ok bool) {
	select {
	case r := <-results:
		return r, true
	case <-ctx.Done():
	}
	for a.young() {
		select {
		case r := <-results:
			return r, true
		case <-time.After(straggling):
		}
	}
	select {
	case r := <-results:
		return r, true
	default:
	}
	for i := range a.seats {
		a.seats[i].giveUp()
	}
	return r, false
}

// young reports whether a release waits for a connection, or has not had one for
// long.
func (a *attempt) young() bool {
	for i := range a.seats {
		sent := locker.Instant(a.seats[i].sent.Load())
		if sent == 0 || locker.Now().Sub(sent) < releasePatience {
			return true
		}
	}
	return false
}

// unanswered is the error of nodes that have said nothing yet.
func (l *Locker) unanswered() *QuorumError {
	e := &QuorumError{Need: l.quorum, Nodes: make([]NodeOutcome, len(l.peers)), kind: locker.ErrUnavailable}
	for i, p := range l.peers {
		e.Nodes[i] = NodeOutcome{Node: p.name, Err: errSlow}
	}
	return e
}

func best(tokens map[fencing.Token]int) int {
	most := 0
	for _, n := range tokens {
		most = max(most, n)
	}
	return most
}
