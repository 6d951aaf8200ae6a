package matrix

import (
	"testing"
	"time"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// holdingNet is a network that holds back that many bytes of each direction.
type holdingNet struct {
	conformance.Network
	requests, replies int
}

func (n holdingNet) HeldBack() (int, int) { return n.requests, n.replies }

func TestAScenarioInWhichNothingIsHeldBackDoesNotGoOn(t *testing.T) {
	for _, c := range []struct {
		name     string
		net      holdingNet
		of       func(conformance.Network) int
		answered bool
		goesOn   bool
	}{
		{"a request", holdingNet{requests: 1}, requests, false, true},
		{"a reply", holdingNet{replies: 1}, replies, false, true},
		{"either", holdingNet{replies: 1}, anything, false, true},
		{"either, the other way", holdingNet{requests: 1}, anything, false, true},
		{"nothing", holdingNet{}, anything, false, false},
		{"a reply only", holdingNet{replies: 1}, requests, false, false},
		{"a request only", holdingNet{requests: 1}, replies, false, false},
		{"something else", holdingNet{requests: 1}, requests, true, false},
	} {
		p := &play{ctx: t.Context(), History: &history.History{}, TTL: 10 * time.Millisecond}
		answer := make(chan report, 1)
		if c.answered {
			answer <- report{Err: "lost"}
		}
		w := &worker{Name: "A", Net: c.net, play: p}
		if err := try(func() { w.heldBack("it", c.of, func() <-chan report { return answer }) }); (err == nil) != c.goesOn {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
