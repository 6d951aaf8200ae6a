package redlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/redisnode"
)

// QuorumError says how each node answered when there was no majority. It is a
// [locker.ErrTaken] if others hold so many nodes that no majority was left, and
// a [locker.ErrUnavailable] if too few nodes answered; only then does it wrap
// the nodes' own errors as well. When Lock or TryLock returns it, nothing is held, and
// what single nodes have granted is being given back; where that may leave the name
// locked for a while, the error is a [locker.ErrOutcomeUnknown] as well.
type QuorumError struct {
	Need  int // nodes that make a majority
	Nodes []NodeOutcome
	kind  error
}

// NodeOutcome is what one node answered.
type NodeOutcome struct {
	Node    string // its address where that is known
	Granted bool
	Err     error // nil if it granted, if another holder has it, or if its answer was not waited for
	Taken   bool  // another holder, or waiter, was there first
	NoLock  bool  // Taken by a key that has no expiry and is no lock of ours, such as data under the lock's name
}

func (o NodeOutcome) String() string { return o.Node + ": " + o.answer() }

func (o NodeOutcome) answer() string {
	switch {
	case o.Granted:
		return "granted"
	case asLost(o.Err) != nil:
		return asLost(o.Err).Reason.String()
	case o.Err != nil:
		return strings.TrimPrefix(o.Err.Error(), locker.ErrUnavailable.Error()+": ")
	case o.Taken && o.NoLock:
		return "taken: " + redisnode.NoLock
	case o.Taken:
		return "taken"
	}
	return "not waited for"
}

func (e *QuorumError) Error() string {
	granted := 0
	for _, o := range e.Nodes {
		if o.Granted {
			granted++
		}
	}
	return fmt.Sprintf("%v: %d of %d nodes agreed, %d are needed (%s)",
		e.kind, granted, len(e.Nodes), e.Need, strings.Join(e.answers(), "; "))
}

// answers says what the nodes answered, each answer once. Nodes that have no vote yet say
// the same in different seconds: the last of them counts.
func (e *QuorumError) answers() (lines []string) {
	var last NodeOutcome
	for _, o := range e.Nodes {
		if redisnode.Young(o.Err) > redisnode.Young(last.Err) {
			last = o
		}
	}
	nodes := make(map[string][]string)
	var answers []string
	for _, o := range e.Nodes {
		answer := o.answer()
		if redisnode.Young(o.Err) > 0 {
			answer = last.answer()
		}
		if nodes[answer] == nil {
			answers = append(answers, answer)
		}
		nodes[answer] = append(nodes[answer], o.Node)
	}
	for _, answer := range answers {
		lines = append(lines, strings.Join(nodes[answer], ", ")+": "+answer)
	}
	return lines
}

// Unwrap returns what kind of failure this is, and the nodes' errors if they are
// the reason. That a node has the lock no more does not make it lost: it would be
// if a majority said so, and that is no QuorumError.
func (e *QuorumError) Unwrap() []error {
	errs := []error{e.kind}
	if errors.Is(e.kind, locker.ErrTaken) {
		return errs
	}
	for _, o := range e.Nodes {
		if o.Err != nil && asLost(o.Err) == nil {
			errs = append(errs, o.Err)
		}
	}
	return errs
}

// failure explains why there is no majority.
func (c *contest) failure() error {
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
			NoLock:  v.noLock && (v.state == taken || v.state == waiting),
			Err:     v.err,
		})
	}
	return e
}

// disagreement says how each node answered a renewal or a release that has no majority.
func (s *store) disagreement(answers []error) *QuorumError {
	e := &QuorumError{Need: s.quorum, kind: locker.ErrUnavailable}
	for i, err := range answers {
		e.Nodes = append(e.Nodes, NodeOutcome{Node: s.nodes[i].name, Granted: err == nil, Err: err})
	}
	return e
}

// asLost returns the loss that err is, or nil.
func asLost(err error) *locker.LostError {
	if err == nil {
		return nil // before lost is allocated
	}
	var lost *locker.LostError
	errors.As(err, &lost)
	return lost
}
