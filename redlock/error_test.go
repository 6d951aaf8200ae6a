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
	e := &QuorumError{Need: 2, Nodes: []NodeOutcome{{Node: "a", Granted: true}, {Node: "b", Taken: true}, {Node: "c", Err: down}, {Node: "d"}, {Node: "e", Err: &locker.LostError{Reason: locker.TakenOver}}}}
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
