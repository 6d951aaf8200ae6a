package redlock

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/lockstile/locker"
)

// A lock that is taken is not a store that is down, though one node is.
func TestQuorumErrorIsWhatTheMajoritySays(t *testing.T) {
	down := errors.Join(locker.ErrUnavailable, io.EOF)
	e := &QuorumError{Need: 2, Nodes: []NodeOutcome{{Node: "a", Granted: true}, {Node: "b", Taken: true}, {Node: "c", Err: down}, {Node: "d"}, {Node: "e", Err: &locker.LostError{Reason: locker.ReasonTakenOver}}}}
	e.kind = locker.ErrTaken
	if !errors.Is(e, locker.ErrTaken) || errors.Is(e, locker.ErrUnavailable) {
		t.Error("taken:", e)
	}
	e.kind = locker.ErrUnavailable
	if errors.Is(e, locker.ErrTaken) || errors.Is(e, locker.ErrLost) || !errors.Is(e, locker.ErrUnavailable) || !errors.Is(e, io.EOF) {
		t.Error("unavailable:", e)
	}
	for _, want := range []string{"1 of 5 nodes agreed, 2 are needed", "a: granted", "b: taken", "c: ", "EOF", "d: not waited for", "e: the store no longer has it"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q is not in: %v", want, e)
		}
	}
}

// A Lock whose context ends while it waits in the queues of nodes that have data under its name. A
// node that is being asked has said nothing yet.
func TestQuorumErrorOfAWaitNamesDataUnderTheName(t *testing.T) {
	c := contest{
		s:     &store{quorum: 2, nodes: []*node{{name: "a"}, {name: "b"}, {name: "c"}}},
		votes: []vote{{state: waiting, noLock: true}, {state: waiting, noLock: true}, {state: asking, noLock: true}},
	}
	if e := c.outcome(); !strings.Contains(e.Error(), "a, b: taken: the key of that name has no expiry") || e.Nodes[2].NoLock {
		t.Error(e)
	}
}
