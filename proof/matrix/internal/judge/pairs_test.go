package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

func TestATimeInWhichBothHoldersAreStoppedCountsOnce(t *testing.T) {
	h := &history.History{Ended: 10 * second}
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, From: 1 * second})
	h.Pauses = []history.Pause{{Worker: "B", From: 4 * second, Until: 6 * second}, {Worker: "A", From: 2 * second, Until: 9 * second}}
	if got, _ := overlap(h); got != 2*time.Second {
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
		h, now := &history.History{}, driver.Now()
		h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, Asked: now, From: now + 1, Until: now + 2})
		h.Claim(history.Write{Worker: "A", Name: "n", Token: 1})
		h.Granted(history.Span{Worker: "B", Name: "n", Token: c.next, Asked: now + 3, From: now + 4, Until: now + 5})
		if c.claimed {
			h.Claim(history.Write{Worker: "B", Name: "n", Token: c.next})
		}
		h.Put(history.Write{Worker: "A", Name: "n", Token: 1, At: driver.Now()}, nil)
		if stale, passed := staleWrites(h, true); stale != 1 || passed != c.passed {
			t.Errorf("%+v: %d stale, %d past the guard", c, stale, passed)
		}
		if v, why := judge(g, locker.PromptHolder, h); (v == FalseClaim) != (c.passed > 0) {
			t.Errorf("%+v: %s (%s)", c, v, why)
		}
	}
}

// A is granted token 1, and its answer is held up. The server forgets that, and grants B token 2. Then A
// hears of its grant, and its claim is refused. Goal: B's next write is no stale one that got past the guard, if the server may
// forget: A's grant came first.
func TestAGrantThatIsHeardLateIsNoLaterGrant(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.PromptHolder | locker.DurableServer}
	for broken, want := range map[locker.Assumptions]Verdict{locker.DurableServer: Fenced, 0: FalseClaim} {
		h, now := new(history.History), driver.Now()
		h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, Asked: now + 2, From: now + 3})
		h.Claim(history.Write{Worker: "B", Name: "n", Token: 2})
		h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, Asked: now, From: now + 4, Until: now + 5})
		h.Claim(history.Write{Worker: "A", Name: "n", Token: 1})
		h.Put(history.Write{Worker: "B", Name: "n", Token: 2, At: driver.Now()}, nil)
		later := driver.Now()
		h.Granted(history.Span{Worker: "C", Name: "n", Token: 3, Asked: later, From: later + 1, Until: later + 2})
		h.Claim(history.Write{Worker: "C", Name: "n", Token: 3})
		h.Ceased("B", 0, later, "unlocked")
		h.Ended = later + 1e9
		f := Find(g, broken, h)
		if f.Verdict != want || f.Passed != 0 || f.Stale != 1 || want == Fenced && strings.Contains(f.Why, "the guard refused") {
			t.Errorf("%v is broken: %+v, want %s", broken, f, want)
		}
	}
}

// Goal: a stale write that was committed in a transaction counts, though nobody claims there.
func TestAStaleWriteThatWasCommittedHasPassed(t *testing.T) {
	h := new(history.History)
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, From: 1, NoRenew: true})
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, From: 3, Asked: 2})
	h.Writes = append(h.Writes, history.Write{Worker: "A", Name: "n", Token: 1, At: 4, Stale: true})
	if stale, passed := staleWrites(h, true); stale != 1 || passed != 1 {
		t.Errorf("%d stale, %d passed", stale, passed)
	}
}

// Goal: a process that was killed believes nothing, also if it was told to unlock before anybody
// had seen it dead.
func TestAKilledHolderBelievesNothingWhateverItIsTold(t *testing.T) {
	h := &history.History{Ended: 10 * second}
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, From: 3 * second})
	h.Ceased("A", 0, 4*second, "unlocked")
	h.Killed("A", 2*second)
	if got, _ := overlap(h); got > 0 {
		t.Errorf("two holders for %v", got)
	}
}

// Goal: a holder counts if its transaction was committed, whatever else there was
// with its token; those that count are judged as always.
func TestOnlyCommittedTransactionsCountAsHolders(t *testing.T) {
	spans := func() []history.Span {
		return []history.Span{
			{Worker: "A", Name: "x", Token: 1, From: 10, Until: 100 * driver.Instant(Slack)},
			{Worker: "B", Name: "x", Token: 1, From: 20, Until: 90 * driver.Instant(Slack)},
		}
	}
	workers := map[int]string{1: "A", 2: "B"}
	both := []history.Entry{{ID: 1, PID: 1, Token: 1, Claim: true}, {ID: 2, PID: 2, Token: 1, Claim: true, Saw: []int64{1}}}
	h := &history.History{Spans: spans()}
	h.Committed(both[1:], "x", workers)
	if v, why := judge(locker.Guarantees{}, 0, h); v != Kept {
		t.Errorf("with one committed: %s (%s)", v, why)
	}
	h = &history.History{Spans: spans()}
	h.Committed(both, "x", workers)
	if v, why := judge(locker.Guarantees{}, 0, h); v != FalseClaim {
		t.Errorf("with two committed at once: %s (%s)", v, why)
	}
}

// Goal: after a failover a worker may be given a token again. What it held on the server that is
// lost was never committed, and does not count.
func TestATokenThatIsGivenAgainAfterAFailoverCountsOnce(t *testing.T) {
	h := &history.History{Spans: []history.Span{
		{Worker: "A", Name: "x", Token: 5, Asked: 1, From: 2, Until: 3},
		{Worker: "A", Name: "x", Token: 4, Asked: 4, From: 5, Until: 6},
		{Worker: "A", Name: "x", Token: 5, Asked: 7, From: 8, Until: 9},
	}}
	h.Committed([]history.Entry{{ID: 1, PID: 1, Token: 4, Claim: true}, {ID: 2, PID: 1, Token: 5, Claim: true, Saw: []int64{1}}}, "x", map[int]string{1: "A"})
	if first, last, disorder := disorder(h, true); disorder || len(h.Counting()) != 2 {
		t.Errorf("%d count, and %v came after %v", len(h.Counting()), last, first)
	}
}
