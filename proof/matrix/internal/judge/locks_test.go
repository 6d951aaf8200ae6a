package judge

import (
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// Each history breaks one promise of a lock, and what excuses it must let it pass.
func TestALockThatIsNotLawfulIsFound(t *testing.T) {
	exclusive := func(worker string, token fencing.Token, from, until driver.Instant) history.Span {
		return history.Span{Worker: worker, Name: "n", Token: token, Asked: from - second/2, From: from, Until: until, ID: int(token)}
	}
	reader := func(worker string, token fencing.Token, from, until driver.Instant) history.Span {
		s := exclusive(worker, token, from, until)
		s.Shared, s.ID = true, int(from)
		return s
	}
	for _, c := range []struct {
		what                        string
		spans                       []history.Span
		both, noExclusion, noTokens bool // lawful if both count, or exclusion is excused, or tokens
	}{
		{"one after another", []history.Span{exclusive("A", 1, 1*second, 2*second), exclusive("B", 2, 3*second, 4*second)}, true, true, true},
		{"after a stranger, who has no token", []history.Span{exclusive("S", 0, 1*second, 2*second), exclusive("A", 1, 3*second, 4*second)}, true, true, true},
		{"a token of zero", []history.Span{exclusive("A", 1, 1*second, 2*second), exclusive("B", 0, 3*second, 4*second)}, false, false, true},
		{"two at once", []history.Span{exclusive("A", 1, 1*second, 4*second), exclusive("B", 2, 3*second, 5*second)}, false, true, false},
		{"a token goes back", []history.Span{exclusive("A", 2, 1*second, 2*second), exclusive("B", 1, 3*second, 4*second)}, false, false, true},
		{"a token comes twice", []history.Span{exclusive("A", 2, 1*second, 2*second), exclusive("B", 2, 3*second, 4*second)}, false, false, true},
		{"readers at once", []history.Span{reader("A", 1, 1*second, 4*second), reader("B", 2, 3*second, 5*second)}, true, true, true},
		{"a reader joins its process", []history.Span{reader("A", 1, 1*second, 4*second), reader("B", 2, 2*second, 5*second), reader("A", 1, 3*second, 5*second)}, true, true, true},
		{"a reader beside a writer", []history.Span{exclusive("A", 1, 1*second, 4*second), reader("B", 2, 3*second, 5*second)}, false, true, false},
		{"a writer beside a reader", []history.Span{reader("A", 1, 1*second, 4*second), exclusive("B", 2, 3*second, 5*second)}, false, true, false},
		{"a writer below a reader", []history.Span{reader("A", 2, 1*second, 2*second), exclusive("B", 1, 3*second, 4*second)}, false, false, true},
		{"a reader has the number of one who has left", []history.Span{reader("A", 1, 1*second, 2*second), reader("B", 1, 3*second, 5*second)}, true, true, true},
		{"a reader has the number of one who has left, and is told of first", []history.Span{reader("B", 1, 3*second, 5*second), reader("A", 1, 1*second, 2*second)}, true, true, true},
		{"a reader has the number of one who stays", []history.Span{reader("A", 1, 1*second, 4*second), reader("B", 1, 3*second, 5*second)}, false, false, true},
		{"a reader has the number of a writer", []history.Span{exclusive("A", 1, 1*second, 2*second), reader("B", 1, 3*second, 5*second)}, false, false, true},
		{"a writer has the number of a reader", []history.Span{reader("A", 1, 1*second, 2*second), exclusive("B", 1, 3*second, 5*second)}, false, false, true},
		{"the former ends within the slack", []history.Span{exclusive("A", 1, 1*second, 3*second+driver.Instant(Slack)/2), exclusive("B", 2, 3*second, 4*second)}, true, true, true},
	} {
		h := &history.History{Ended: 10 * second}
		for _, s := range c.spans {
			h.Granted(s)
		}
		for _, excused := range []struct{ exclusion, tokens, want bool }{{true, true, c.both}, {false, true, c.noExclusion}, {true, false, c.noTokens}} {
			if name, got := unlawful(h, excused.exclusion, excused.tokens); (got == porcupine.Ok) != excused.want || (got != porcupine.Ok) != (name == "n") {
				t.Errorf("%s (exclusion counts: %v, tokens: %v): %v %q", c.what, excused.exclusion, excused.tokens, got, name)
			}
		}
	}
}

// A stopped process believes nothing, unless it was about to write.
func TestAHolderThatIsStoppedCeasesToBelieve(t *testing.T) {
	for _, midway := range []bool{false, true} {
		h := &history.History{Ended: 10 * second}
		h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, Asked: 0, From: 1 * second, Until: 6 * second, ID: 1})
		h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, Asked: 3 * second, From: 4 * second, Until: 5 * second, ID: 1})
		h.Pauses = []history.Pause{{Worker: "A", From: 2 * second, Until: 6 * second, Midway: midway}}
		if _, got := unlawful(h, true, true); (got == porcupine.Ok) == midway {
			t.Errorf("midway %v: %v", midway, got)
		}
	}
}

// Goal: a history as long as a round's, with many calls at once, is checked in a moment.
func TestALongHistoryIsCheckedSoon(t *testing.T) {
	h := &history.History{Ended: 1 << 50}
	at := driver.Instant(0)
	for i := range 4000 {
		h.Spans = append(h.Spans, history.Span{
			Worker: fmt.Sprint("W", i%12), Name: "n", Token: fencing.Token(i + 1), ID: i,
			Asked: max(0, at-20*11), From: at + 2, Until: at + 10 + driver.Instant(Slack),
		})
		at += 20
	}
	if name, got := unlawful(h, true, true); got != porcupine.Ok {
		t.Errorf("%s: %v", name, got)
	}
}

// Goal: calls that wait together, and are granted in another order than they were made, are
// checked in a moment, too: a soak's round has that many after a store was away.
func TestManyWaitersAtOnceAreCheckedSoon(t *testing.T) {
	const waiters = 40
	h := &history.History{Ended: 1 << 50}
	for i := range 20 * waiters {
		at := driver.Instant(i) * second
		h.Spans = append(h.Spans, history.Span{
			Worker: fmt.Sprint("W", i%12), Name: "n", Token: fencing.Token(i + 1), ID: i, Shared: i%3 > 0,
			Asked: driver.Instant(i/waiters*waiters)*second - driver.Instant(i%waiters), From: at, Until: at + second/2,
		})
	}
	if name, got := unlawful(h, true, true); got != porcupine.Ok {
		t.Errorf("%s: %v", name, got)
	}
}

// Goal: what only the order of all calls shows counts. Pairs of holders show nothing here: the
// reader has the number of a lease that it had.
func TestAReaderThatComesBackOnALeaseThatIsOverIsAFalseClaim(t *testing.T) {
	h := &history.History{Ended: 10 * second}
	for i, s := range []history.Span{
		{Worker: "A", Token: 1, Shared: true, From: 1 * second, Until: 2 * second},
		{Worker: "B", Token: 2, From: 3 * second, Until: 4 * second},
		{Worker: "A", Token: 1, Shared: true, From: 5 * second, Until: 6 * second},
	} {
		s.Name, s.Asked, s.ID = "n", s.From-second/2, i
		h.Granted(s)
	}
	longest, _ := overlap(h)
	if _, _, disorder := disorder(h, true); disorder || longest > Slack {
		t.Error("pairs of holders show it")
	}
	if got, why := judge(locker.Guarantees{}, 0, h); got != FalseClaim {
		t.Errorf("%s (%s), not %s", got, why, FalseClaim)
	}
}
