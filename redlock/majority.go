package redlock

import (
	"errors"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/redisnode"
)

// vote is how a node stands.
type vote struct {
	state  state
	token  uint64
	err    error
	look   time.Time // when it makes sense to ask again without a word
	ticket int64
	told   bool // a word came that no request has followed yet
}

type state uint8

const (
	idle    state = iota // not asked, or given back
	asking               // a request is under way
	granted              //
	raising              // granted, and its counter is being lifted
	waiting              // taken by somebody else, and we are in the queue
	taken                // taken by somebody else
	young                // it has no vote yet
	failed               //
)

// situation is what else decides how a contest goes on.
type situation struct {
	wait     bool // for a majority, or one look
	resting  bool
	gathered bool // nodes that kept us waiting were asked once more
	splits   int  // votes that were split so far
}

// verdict is what the votes come to.
type verdict uint8

const (
	open  verdict = iota // answers are still to come
	won                  // a majority has granted it, with one token
	short                // a majority has, and some of it must be lifted to its token
	late                 // others may be a moment later: the holder is giving back
	split                // nobody has a majority: what was won is given back
	lost                 // it cannot be won any more
)

// count returns how many votes are in one of the states.
func count(votes []vote, states ...state) int {
	n := 0
	for _, v := range votes {
		if slices.Contains(states, v.state) {
			n++
		}
	}
	return n
}

// saysTaken reports whether others have so many nodes that no majority is left.
func saysTaken(votes []vote) bool { return count(votes, waiting, taken) > len(votes)-quorum(votes) }

func quorum(votes []vote) int { return majority(len(votes)) }

func majority(nodes int) int { return nodes/2 + 1 }

// judge says what the votes come to.
func judge(votes []vote, s situation) verdict {
	need := quorum(votes)
	mine, failures := count(votes, granted, raising), count(votes, failed)
	switch {
	case common(votes) != 0:
		return won
	case mine >= need && count(votes, raising) == 0:
		return short
	case s.resting:
		return open
	case !s.wait && mine+count(votes, asking) < need:
		// Nodes that have granted it speak against a holder: an unlock may not
		// have reached the others yet, or an attempt like ours is giving back.
		if s.splits+1 >= mostLooks || count(votes, granted) == 0 || count(votes, raising) > 0 || failures > len(votes)-need {
			return lost
		}
		return split
	case 0 < mine && mine < need && mine+count(votes, waiting, taken) >= need && !s.gathered:
		return late
	case !s.wait || count(votes, asking, raising) > 0:
		return open
	case failures > len(votes)-need:
		return lost
	}
	return split
}

// common returns the token that a majority has granted, or 0.
func common(votes []vote) uint64 {
	for _, v := range votes {
		n := 0
		for _, w := range votes {
			if w.state == granted && w.token == v.token {
				n++
			}
		}
		if v.state == granted && n >= quorum(votes) {
			return v.token
		}
	}
	return 0
}

// raise lifts the nodes of a majority that drew a smaller number than the greatest to
// the end of the range that begins with that: their counters end below it.
func (c *contest) raise() {
	var token uint64
	for _, v := range c.votes {
		if v.state == granted {
			token = max(token, v.token)
		}
	}
	for i := range c.votes {
		v := &c.votes[i]
		if v.state != granted || v.token == token {
			continue
		}
		v.state = raising
		seat, answers := &c.a.seats[i], c.answers
		c.s.locks.Go(func() {
			err := c.s.nodes[i].raise(seat, token)
			answers <- answer{node: i, raised: token, err: err}
		})
	}
}

// defeat explains why there is no majority.
func (c *contest) defeat() error {
	e := c.outcome()
	refused := 0
	for _, o := range e.Nodes {
		if o.Err != nil && redisnode.Refused(o.Err) {
			refused++
		}
	}
	if refused > len(e.Nodes)-e.Need {
		return driver.Refused(e)
	}
	return e
}

func (c *contest) outcome() *QuorumError {
	e := &QuorumError{Need: c.s.quorum, kind: locker.ErrUnavailable}
	if saysTaken(c.votes) {
		e.kind = locker.ErrTaken
	}
	for i, v := range c.votes {
		e.Nodes = append(e.Nodes, NodeOutcome{
			Node:    c.s.nodes[i].name,
			Granted: v.state == granted || v.state == raising,
			Taken:   v.state == taken || v.state == waiting,
			Err:     v.err,
		})
	}
	return e
}

// decision is what the nodes' answers to a renewal or a release come to.
type decision uint8

const (
	undecided decision = iota
	yes                // a majority has done it
	no                 // so many have the lock no more that no majority is left
	free               // too few have done it, but a majority does not have the lock
	unknown            // too few have answered
)

var (
	// errPending is the answer of a node that has given none yet.
	errPending = errors.New("no answer yet")
	// errAbsent is the answer of a node that was not asked.
	errAbsent = errors.New("it had not granted the lock")
)

// tally says what the answers of all nodes come to; nil is a yes. Where nodes did not
// answer or were never asked, that alone does not make a lock lost: a node must have
// said that it has it no more.
func tally(answers []error) (decision, locker.Reason) {
	agreed, failed, pending := 0, 0, 0
	reason := locker.Reason(0)
	for _, err := range answers {
		lost := asLost(err)
		switch {
		case err == nil:
			agreed++
		case errors.Is(err, errPending):
			pending++
		case lost != nil:
			if reason == 0 || lost.Reason == locker.Forced {
				reason = lost.Reason
			}
		case !errors.Is(err, errAbsent):
			failed++
		}
	}
	need := majority(len(answers))
	switch {
	case agreed >= need:
		return yes, 0
	case reason != 0 && agreed+failed+pending < need:
		return no, reason
	case agreed+pending >= need:
		return undecided, 0
	case pending == 0 && failed <= len(answers)-need:
		return free, 0
	}
	return unknown, 0
}

// disagreement says how each node answered a renewal or a release that has no majority.
func (s *store) disagreement(answers []error) *QuorumError {
	e := &QuorumError{Need: s.quorum, kind: locker.ErrUnavailable}
	for i, err := range answers {
		e.Nodes = append(e.Nodes, NodeOutcome{Node: s.nodes[i].name, Granted: err == nil, Err: err})
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
