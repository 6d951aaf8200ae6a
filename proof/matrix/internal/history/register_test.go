package history

import "testing"

// inTurn is two transactions: the first claimed and wrote, and then the second claimed.
func inTurn(secondSaw ...int64) []Entry {
	return []Entry{
		{ID: 1, PID: 1, Token: 1, Claim: true},
		{ID: 2, PID: 1, Token: 1},
		{ID: 3, PID: 2, Token: 2, Claim: true, Saw: secondSaw},
	}
}

func TestAWriteThatTheNextHolderSawIsInTurn(t *testing.T) {
	if entries := inTurn(1, 2); outOfTurn(entries[1], entries) {
		t.Error("it is called stale")
	}
}

func TestAWriteThatCameAfterTheNextClaimIsStale(t *testing.T) {
	if entries := inTurn(1); !outOfTurn(entries[1], entries) {
		t.Error("it is not called stale")
	}
}

func TestAWriteThatASmallerTokenSawIsStale(t *testing.T) {
	entries := inTurn(1, 2)
	entries[2].Token = 0
	if !outOfTurn(entries[1], entries) {
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
		if got := outOfTurn(entries[1], entries); got != c.stale {
			t.Errorf("%+v: stale is %v", c, got)
		}
	}
}
