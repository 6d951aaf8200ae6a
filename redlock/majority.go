package redlock

import (
	"errors"
	"slices"
	"time"

	"github.com/lockstile/locker"
)

// vote is how a node stands.
type vote struct {
	state  state
	token  uint64
	err    error
	noLock bool      // what it has under the name is no lock
	look   time.Time // when it makes sense to ask again without a word
	ticket int64
	word   bool // a word came that no request has followed yet
}

type state uint8

const (
	idle    state = iota // not asked, or given back
	asking               // a request is under way
	granted              //
	raising              // granted, and its counter is being raised
	waiting              // taken by somebody else, and we are in the queue
	taken                // taken by somebody else
	young                // it has no vote yet
	failed               //
)

// situation is what else decides how a contest goes on.
type situation struct {
	wait     bool // in the queues; else it is one look
	resting  bool // until the next round
	gathered bool // nodes that others have were asked once more
	splits   int  // rounds that ended with a split vote
}

// mostLooks is how often an attempt that does not wait looks, where some nodes have
// granted the lock and others have not.
const mostLooks = 3

// verdict is what the votes come to.
type verdict uint8

const (
	open  verdict = iota // answers are still to come
	won                  // a majority has granted it, with one token
	short                // a majority has, and some of it must be raised to its token
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
			if reason == 0 || lost.Reason == locker.ReasonForced {
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
