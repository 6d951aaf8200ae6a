package matrix

import (
	"os"
	"os/exec"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// Goal: a register that is not read hides nobody. Method: the same history with
// and without the claim of a holder whose commit was confirmed.
func TestAConfirmedCommitThatIsNotInTheRegisterIsMissed(t *testing.T) {
	claim := Entry{ID: 1, PID: 1, Token: 1, Claim: true}
	for _, c := range []struct {
		unlocked bool
		entries  []Entry
		missing  bool
	}{{true, nil, true}, {false, nil, false}, {true, []Entry{claim}, false}} {
		h := &history.History{Spans: []history.Span{{Worker: "A", Name: "x", Token: 1, From: 1, Until: 2}}}
		p := &play{History: h, System: &System{Register: func(string) ([]Entry, error) { return c.entries, nil }}, names: []string{"x"}}
		p.workers = []*worker{{Name: "A", cmd: &exec.Cmd{Process: &os.Process{Pid: 1}}}}
		if c.unlocked {
			h.Unlocked("A", 0)
		}
		if err := p.readRegister(); (err != nil) != c.missing {
			t.Errorf("%+v: %v", c, err)
		}
		p.scenario.Breaks = locker.DurableReplica
		if err := p.readRegister(); err != nil {
			t.Errorf("%+v, and a replica forgot: %v", c, err)
		}
	}
}
