package redlock

import (
	"slices"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// count returns how many nodes are in one of the states.
func (c *contest) count(states ...state) int {
	n := 0
	for _, v := range c.votes {
		if slices.Contains(states, v.state) {
			n++
		}
	}
	return n
}

// judge decides whether the contest is over.
func (c *contest) judge() (over bool, err error) {
	if err := c.l.twins(); err != nil {
		return true, err
	}
	if token := c.common(); token != 0 {
		c.a.token = token
		return true, nil
	}
	mine := c.count(granted, raising)
	switch {
	case mine >= c.l.quorum && c.count(raising) == 0:
		c.raise()
	case c.resting:
	case !c.wait && mine+c.count(asking) < c.l.quorum:
		// Nodes that have granted it speak against a holder: an unlock may not
		// have reached the others yet, or an attempt like ours is giving back.
		if c.splits+1 >= mostLooks || c.count(granted) == 0 || c.count(raising) > 0 || c.count(failed) > len(c.votes)-c.l.quorum {
			return true, c.defeat()
		}
		c.rest()
	case mine > 0 && mine+c.count(waiting, taken) >= c.l.quorum && !c.gathered:
		c.timer.Reset(min(c.a.seats[0].timeout, straggling)) // the holder is giving back: the others come a moment later
	case !c.wait || c.underWay > 0:
	case c.count(failed) > len(c.votes)-c.l.quorum:
		return true, c.defeat()
	default:
		c.rest()
	}
	return false, nil
}

// common returns the token that a majority has granted, or 0.
func (c *contest) common() fencing.Token {
	for _, v := range c.votes {
		n := 0
		for _, w := range c.votes {
			if w.state == granted && w.token == v.token {
				n++
			}
		}
		if v.state == granted && n >= c.l.quorum {
			return v.token
		}
	}
	return 0
}

// raise writes the greatest token of a majority back to those of its nodes that
// drew a smaller one.
func (c *contest) raise() {
	var token fencing.Token
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
		s, answers := &c.a.seats[i], c.answers
		c.underWay++
		c.l.chores.Go(func() {
			err := c.l.raise(s, c.l.peers[i], token)
			answers <- answer{node: i, raised: token, err: err}
		})
	}
}

// defeat explains why there is no majority.
func (c *contest) defeat() error {
	e := &QuorumError{Need: c.l.quorum, kind: locker.ErrTaken}
	if c.count(failed) > len(c.votes)-c.l.quorum {
		e.kind = locker.ErrUnavailable
	}
	for i, v := range c.votes {
		e.Nodes = append(e.Nodes, NodeOutcome{
			Node:    c.l.peers[i].name,
			Granted: v.state == granted || v.state == raising,
			Taken:   v.state == taken || v.state == waiting,
			Err:     v.err,
		})
	}
	return e
}
