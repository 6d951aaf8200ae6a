package matrix

import (
	"os"
	"os/exec"
	"testing"

	"github.com/lockstile/locker"
)

// inTurn is two transactions: the first claimed and wrote, and then the second claimed.
func inTurn(secondSaw ...int64) []Entry {
	return []Entry{
		{ID: 1, PID: 1, Token: 1, Claim: true},
		{ID: 2, PID: 1, Token: 1},
		{ID: 3, PID: 2, Token: 2, Claim: true, Saw: secondSaw},
	}
}

func TestAWriteThatTheNextHolderSawIsInTurn(t *testing.T) {
	if entries := inTurn(1, 2); stale(entries[1], entries) {
		t.Error("it is called stale")
	}
}

func TestAWriteThatCameAfterTheNextClaimIsStale(t *testing.T) {
	if entries := inTurn(1); !stale(entries[1], entries) {
		t.Error("it is not called stale")
	}
}

func TestAWriteThatASmallerTokenSawIsStale(t *testing.T) {
	entries := inTurn(1, 2)
	entries[2].Token = 0
	if !stale(entries[1], entries) {
		t.Error("it is not called stale")
	}
}

// Readers hold the lock at the same time.
func TestReadersNeedNotSeeOneAnothersReads(t *testing.T) {
	for _, c := range []struct {
		first, second bool // share the lock
		saw           []int64
		stale         bool
	}{
		{true, true, []int64{1}, false}, {true, true, []int64{1, 2}, false},
		{true, false, []int64{1}, true}, {true, false, []int64{1, 2}, false},
		{false, true, []int64{1}, true}, {false, true, []int64{1, 2}, false},
	} {
		entries := inTurn(c.saw...)
		entries[0].Shared, entries[1].Shared, entries[2].Shared = c.first, c.first, c.second
		if got := stale(entries[1], entries); got != c.stale {
			t.Errorf("%+v: stale is %v", c, got)
		}
	}
}

// Goal: a holder counts if its transaction was committed, whatever else there was
// with its token; those that count are judged as always.
func TestOnlyCommittedTransactionsCountAsHolders(t *testing.T) {
	spans := func() []Span {
		return []Span{
			{Worker: "A", Name: "x", Token: 1, From: 10, Until: 100 * locker.Instant(slack)},
			{Worker: "B", Name: "x", Token: 1, From: 20, Until: 90 * locker.Instant(slack)},
		}
	}
	workers := map[int]string{1: "A", 2: "B"}
	both := []Entry{{ID: 1, PID: 1, Token: 1, Claim: true}, {ID: 2, PID: 2, Token: 1, Claim: true, Saw: []int64{1}}}
	h := &History{Spans: spans()}
	h.committed(both[1:], "x", workers)
	if v, why := judge(locker.Guarantees{}, 0, h); v != Kept {
		t.Errorf("with one committed: %s (%s)", v, why)
	}
	h = &History{Spans: spans()}
	h.committed(both, "x", workers)
	if v, why := judge(locker.Guarantees{}, 0, h); v != FalseClaim {
		t.Errorf("with two committed at once: %s (%s)", v, why)
	}
}

// Goal: after a failover a worker may be given a token again. What it held on the server that is
// lost was never committed, and does not count.
func TestATokenThatIsGivenAgainAfterAFailoverCountsOnce(t *testing.T) {
	h := &History{Spans: []Span{
		{Worker: "A", Name: "x", Token: 5, Asked: 1, From: 2, Until: 3},
		{Worker: "A", Name: "x", Token: 4, Asked: 4, From: 5, Until: 6},
		{Worker: "A", Name: "x", Token: 5, Asked: 7, From: 8, Until: 9},
	}}
	h.committed([]Entry{{ID: 1, PID: 1, Token: 4, Claim: true}, {ID: 2, PID: 1, Token: 5, Claim: true, Saw: []int64{1}}}, "x", map[int]string{1: "A"})
	if first, last, disorder := h.Disorder(); disorder || len(h.counting()) != 2 {
		t.Errorf("%d count, and %v came after %v", len(h.counting()), last, first)
	}
}

// Goal: a register that is not read hides nobody. Method: the same history with
// and without the claim of a holder whose commit was confirmed.
func TestAConfirmedCommitThatIsNotInTheRegisterIsMissed(t *testing.T) {
	claim := Entry{ID: 1, PID: 1, Token: 1, Claim: true}
	for _, c := range []struct {
		unlocked bool
		entries  []Entry
		missing  bool
	}{{true, nil, true}, {false, nil, false}, {true, []Entry{claim}, false}} {
		h := &History{Spans: []Span{{Worker: "A", Name: "x", Token: 1, From: 1, Until: 2}}}
		p := &Play{History: h, System: &System{Register: func(string) ([]Entry, error) { return c.entries, nil }}, names: []string{"x"}}
		p.workers = []*Worker{{Name: "A", cmd: &exec.Cmd{Process: &os.Process{Pid: 1}}}}
		if c.unlocked {
			h.unlocked("A", 0)
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
