package matrix

import (
	"testing"

	"github.com/lockstile/locker"
)

// two transactions, of which the first claimed and wrote, and then the second.
func turns(secondSaw ...int64) []Entry {
	return []Entry{
		{ID: 1, PID: 1, Token: 1, Claim: true},
		{ID: 2, PID: 1, Token: 1},
		{ID: 3, PID: 2, Token: 2, Claim: true, Saw: secondSaw},
	}
}

func TestAWriteThatTheNextHolderSawIsInTurn(t *testing.T) {
	if entries := turns(1, 2); stale(entries[1], entries) {
		t.Error("it is called stale")
	}
}

func TestAWriteThatCameAfterTheNextClaimIsStale(t *testing.T) {
	if entries := turns(1); !stale(entries[1], entries) {
		t.Error("it is not called stale")
	}
}

func TestAWriteThatASmallerTokenSawIsStale(t *testing.T) {
	entries := turns(1, 2)
	entries[2].Token = 0
	if !stale(entries[1], entries) {
		t.Error("it is not called stale")
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
	h.settle(both[1:], "x", workers)
	if v, why := judge(locker.Guarantees{}, 0, h); v != Kept {
		t.Errorf("with one committed: %s (%s)", v, why)
	}
	h = &History{Spans: spans()}
	h.settle(both, "x", workers)
	if v, why := judge(locker.Guarantees{}, 0, h); v != FalseClaim {
		t.Errorf("with two committed at once: %s (%s)", v, why)
	}
}
