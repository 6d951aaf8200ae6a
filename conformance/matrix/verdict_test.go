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

func TestTokensThatWentBackDoNotShowThatExclusionCanBreak(t *testing.T) {
	m := found(locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.PromptHolder}, Broken, Kept, Kept)
	m.Cells[0].Stale = 0
	modest, _ := m.unproven(nil)
	if len(modest) != 1 || modest[0].Guarantee != "exclusion" {
		t.Errorf("modest %v", modest)
	}
}
