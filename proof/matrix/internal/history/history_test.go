package history

import (
	"testing"
	"time"

	"github.com/lockstile/locker/driver"
)

// Goal: a write that a claim has caused to be refused counts as later than the claim's
// beginning, however late the claim is noted. Else a guard that does what it should would not be linearizable.
func TestAWriteThatIsRefusedBecauseOfAClaimUnderWayIsInOrder(t *testing.T) {
	h, done := new(History), make(chan struct{})
	h.mu.Lock() // the claim reaches the guard and cannot be noted yet
	go func() { h.Claim(Write{Worker: "B", Name: "n", Token: 2}); close(done) }()
	for h.guard.Check(t.Context(), "n", 1) == nil {
		time.Sleep(time.Millisecond)
	}
	refused := driver.Now()
	h.mu.Unlock()
	<-done
	if claim := h.Ops[0]; claim.Called > refused {
		t.Errorf("the claim is noted %v after a write was refused because of it", claim.Called.Sub(refused))
	}
}

// The report of a loss may come late.
func TestABeliefEndsAtItsEarliestEnd(t *testing.T) {
	for _, ends := range [][]driver.Instant{{20, 30}, {30, 20}} {
		h := new(History)
		h.Granted(Span{Worker: "A", Name: "n", Token: 1, From: 10})
		for _, at := range ends {
			h.Ceased("A", 0, at, "told")
		}
		if got := h.Spans[0].Until; got != 20 {
			t.Errorf("told of %v, it ended at %v", ends, got)
		}
	}
}

// Goal: who has another lock makes no write stale.
func TestAWriteIsStaleByHoldersOfItsOwnLockAlone(t *testing.T) {
	for _, other := range []string{"n", "m"} {
		h, at := new(History), driver.Now()
		h.Granted(Span{Worker: "A", Name: "n", Token: 1, From: at, Until: at + 1})
		h.Granted(Span{Worker: "B", Name: other, Token: 2, From: at + 2})
		h.write(Write{Worker: "A", Name: "n", Token: 1, At: at + 3})
		if stale := h.Writes[0].Stale; stale != (other == "n") {
			t.Errorf("a write to n after a grant of %s is stale: %v", other, stale)
		}
	}
}

// Goal: a store that refuses two workers for a minute is told in two lines, and what was done meanwhile stands between.
func TestWhatComesAgainAndAgainIsALineWithACount(t *testing.T) {
	h := new(History)
	refused := func(times int) {
		for range times {
			h.Repeat("%s is refused", "A")
			h.Repeat("%s is refused", "B")
		}
	}
	refused(3)
	h.Mark("the server comes back")
	h.Mark("the server comes back")
	refused(1)
	for i := range h.Marks {
		h.Marks[i].At = driver.Instant(i) * driver.Instant(time.Second)
		if h.Marks[i].Times > 0 {
			h.Marks[i].Last = h.Marks[i].At + 7
		}
	}
	const want = "        0s  A is refused (3 times, until 0s)\n        1s  B is refused (3 times, until 1s)\n" +
		"        2s  the server comes back\n        3s  the server comes back\n        4s  A is refused\n        5s  B is refused\n"
	if got := h.Text(); got != want {
		t.Errorf("it is\n%s\nand not\n%s", got, want)
	}
}

func TestNothingRefusesAWriteWithoutAToken(t *testing.T) {
	h := &History{Tokenless: true} // the numbers of grants are no tokens
	h.Claim(Write{Worker: "B", Name: "n", Token: 2})
	h.write(Write{Worker: "B", Name: "n", Token: 2, At: driver.Now()})
	h.write(Write{Worker: "A", Name: "n", Token: 1, At: driver.Now()})
	if h.Writes[1].Refused || len(h.Ops) > 0 {
		t.Errorf("there was a guard: %+v", h.Writes)
	}
}
