package matrix

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
)

const second = locker.Instant(time.Second)

func TestExclusionThatIsNotPromisedIsNoFalseClaim(t *testing.T) {
	h := &History{Ended: 10 * second}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second, TakenAway: true})
	h.granted(Span{Worker: "B", Name: "n", Token: 2, From: 2 * second})
	g := locker.Guarantees{Exclusion: locker.Unpromised}
	if got, why := judge(g, 0, h); got != BrokenFenced {
		t.Errorf("%q (%s), not %q", got, why, BrokenFenced)
	}
	if modest, untried := found(g, Kept, Kept, Kept).unproven(nil); len(modest)+len(untried) > 0 {
		t.Errorf("modest %v, not tried %v", modest, untried)
	}
}

// A store that grants nothing before the fault cannot blame it.
func TestAStandstillBeforeTheFaultIsAFalseClaim(t *testing.T) {
	still := &standstill{errors.New("A got no lock")}
	sc := Scenario{Name: "amnesia", Breaks: locker.DurableServer}
	p := &Play{History: &History{}, scenario: sc}
	p.Arrange("a snapshot is taken", func() error { return nil })
	if c := p.cell(Cell{}, Subject{}, still); c.Verdict != FalseClaim {
		t.Errorf("before the fault: %s (%s)", c.Verdict, c.Why)
	}
	p.Break("a server forgets", func() error { return nil })
	if c := p.cell(Cell{}, Subject{}, still); c.Verdict != Unavailable {
		t.Errorf("after the fault: %s (%s)", c.Verdict, c.Why)
	}
}

// Goal: a holder looks at its lock, the machine does not run it for a while, and its write comes when
// somebody else holds the lock. That is no false claim, unless there is another stale write.
func TestAHolderWhomTheMachineHindersMakesNoFalseClaim(t *testing.T) {
	late, prompt := Write{Looked: 2 * second, At: 4 * second}, Write{Looked: 4 * second, At: 4*second + 1}
	for _, c := range []struct {
		what           string
		leanOn, broken locker.Assumptions
		writes         []Write
		want           Verdict
	}{
		{"late", locker.PromptHolder, 0, []Write{late}, NotPlayed},
		{"late, as the scenario wants it", locker.PromptHolder, locker.PromptHolder, []Write{late}, BrokenFenced},
		{"late, and another one", locker.PromptHolder, 0, []Write{late, prompt}, FalseClaim},
		{"late, and that is said to do no harm", locker.DurableServer, 0, []Write{late}, FalseClaim},
		{"nobody knows when it looked", locker.PromptHolder, 0, []Write{{At: 4 * second}}, FalseClaim},
	} {
		h := &History{Ended: 10 * second}
		h.granted(Span{Worker: "A", Name: "n", Token: 1, Asked: 0, From: 1 * second, Until: 3 * second})
		h.granted(Span{Worker: "B", Name: "n", Token: 2, Asked: 2 * second, From: 3 * second})
		h.claim(Write{Worker: "B", Name: "n", Token: 2})
		for _, w := range c.writes {
			w.Worker, w.Name, w.Token = "A", "n", 1
			h.write(w)
		}
		if got, why := judge(locker.Guarantees{Exclusion: c.leanOn}, c.broken, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

func TestTokensThatWentBackDoNotShowThatExclusionCanBreak(t *testing.T) {
	m := found(locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.PromptHolder}, Broken, Kept, Kept)
	m.Cells[0].Stale = 0
	modest, _ := m.unproven(nil)
	if len(modest) != 1 || modest[0].Guarantee != "exclusion" {
		t.Errorf("modest %v", modest)
	}
}
