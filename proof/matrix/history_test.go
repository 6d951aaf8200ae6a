package matrix

import (
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Goal: a write that a claim has caused to be refused counts as later than the claim's
// beginning, however late the claim is noted.
func TestAWriteThatIsRefusedBecauseOfAClaimUnderWayIsInOrder(t *testing.T) {
	h, done := new(History), make(chan struct{})
	h.mu.Lock() // the claim reaches the guard and cannot be noted yet
	go func() { h.claim(Write{Worker: "B", Name: "n", Token: 2}); close(done) }()
	for h.guard.Check(t.Context(), "n", 1) == nil {
		time.Sleep(time.Millisecond)
	}
	called := locker.Now()
	refused := h.guard.Check(t.Context(), "n", 1) != nil
	h.ops = append(h.ops, writeOp{Write{Worker: "A", Name: "n", Token: 1, Refused: refused}, called, locker.Now()})
	h.mu.Unlock()
	<-done
	if !h.Linearizable() {
		t.Error("a guard that did what it should is called not linearizable")
	}
}

func TestATimeInWhichBothHoldersAreStoppedCountsOnce(t *testing.T) {
	h := &History{Ended: 10 * second}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
	h.granted(Span{Worker: "B", Name: "n", Token: 2, From: 1 * second})
	h.Pauses = []Pause{{Worker: "B", From: 4 * second, Until: 6 * second}, {Worker: "A", From: 2 * second, Until: 9 * second}}
	if got := h.Overlap(); got != 2*time.Second {
		t.Errorf("two holders for %v, not 2s", got)
	}
}

// Goal: a guard is not blamed for what it took before the next holder's claim,
// and is for what it took after it, also if it refused the claim itself.
func TestAGuardIsBlamedOnlyForWhatItTookAfterAClaim(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.PromptHolder}
	for _, c := range []struct {
		next    fencing.Token // whose token went back, or not
		claimed bool
		passed  int
	}{{2, false, 0}, {2, true, 0}, {1, true, 1}} {
		h, now := &History{}, locker.Now()
		h.granted(Span{Worker: "A", Name: "n", Token: 1, Asked: now, From: now + 1, Until: now + 2})
		h.claim(Write{Worker: "A", Name: "n", Token: 1})
		h.granted(Span{Worker: "B", Name: "n", Token: c.next, Asked: now + 3, From: now + 4, Until: now + 5})
		if c.claimed {
			h.claim(Write{Worker: "B", Name: "n", Token: c.next})
		}
		h.write(Write{Worker: "A", Name: "n", Token: 1, At: now + 6})
		if stale, passed := h.Stale(); stale != 1 || passed != c.passed {
			t.Errorf("%+v: %d stale, %d past the guard", c, stale, passed)
		}
		if v, why := judge(g, locker.PromptHolder, h); (v == FalseClaim) != (c.passed > 0) {
			t.Errorf("%+v: %s (%s)", c, v, why)
		}
	}
}

// The report of a loss may come late.
func TestABeliefEndsAtItsEarliestEnd(t *testing.T) {
	for _, ends := range [][]locker.Instant{{2 * second, 3 * second}, {3 * second, 2 * second}} {
		h := new(History)
		h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
		for _, at := range ends {
			h.ended("A", 0, at, "told")
		}
		if got := h.Spans[0].Until; got != 2*second {
			t.Errorf("told of %v, it ended at %v", ends, got)
		}
	}
}

// Goal: who has another lock makes no write stale.
func TestAWriteIsStaleByHoldersOfItsOwnLockAlone(t *testing.T) {
	for _, other := range []string{"n", "m"} {
		h, at := new(History), locker.Now()
		h.granted(Span{Worker: "A", Name: "n", Token: 1, From: at, Until: at + 1})
		h.granted(Span{Worker: "B", Name: other, Token: 2, From: at + 2})
		h.write(Write{Worker: "A", Name: "n", Token: 1, At: at + 3})
		if stale, _ := h.Stale(); (stale == 1) != (other == "n") {
			t.Errorf("%d stale writes to n after a grant of %s", stale, other)
		}
	}
}

// Goal: a process that was killed believes nothing, also if it was told to unlock before anybody
// had seen it dead.
func TestAKilledHolderBelievesNothingWhateverItIsTold(t *testing.T) {
	h := &History{Ended: 10 * second}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
	h.granted(Span{Worker: "B", Name: "n", Token: 2, From: 3 * second})
	h.ended("A", 0, 4*second, "unlocked")
	h.killed("A", 2*second)
	if got := h.Overlap(); got > 0 {
		t.Errorf("two holders for %v", got)
	}
}
