package matrix

import (
	"errors"
	"slices"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// found returns a matrix of one subject with these verdicts.
func found(g locker.Guarantees, verdicts ...Verdict) *Matrix {
	m := &Matrix{Subjects: []Subject{{Name: "it", Guarantees: g}}, Scenarios: []Scenario{
		{Name: "pause", Breaks: locker.PromptHolder},
		{Name: "amnesia", Breaks: locker.DurableServer | locker.ForwardClock},
		{Name: "herd"},
	}}
	stale := map[Verdict]int{Broken: 1, Fenced: 1}
	for i, v := range verdicts {
		m.Cells = append(m.Cells, Cell{Scenario: m.Scenarios[i].Name, Subject: "it", Verdict: v, Stale: stale[v]})
	}
	return m
}

// Each assumption of a declaration was seen to matter, or was broken without harm, or
// nothing can break it, or nobody knows: a scenario that breaks it could have been played
// and was not.
func TestModestIsWhatWasBrokenWithoutHarm(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.PromptHolder | locker.DurableServer, Tokens: locker.ForwardClock}
	for _, c := range []struct {
		verdicts        []Verdict
		modest, untried []Unproven
	}{
		{[]Verdict{Fenced, Broken, Kept}, nil, nil},
		{[]Verdict{Kept, Fenced, Kept}, []Unproven{{"it", "exclusion", locker.PromptHolder}, {"it", "tokens", locker.ForwardClock}}, nil},
		{[]Verdict{Fenced, Skipped, Kept}, nil, []Unproven{{"it", "exclusion", locker.DurableServer}, {"it", "tokens", locker.ForwardClock}}},
		{[]Verdict{NotPlayed, Broken, Kept}, nil, nil},
		{[]Verdict{Skipped, Broken, Kept}, nil, []Unproven{{"it", "exclusion", locker.PromptHolder}}},
	} {
		modest, untried := found(g, c.verdicts...).unproven(nil)
		if !slices.Equal(modest, c.modest) || !slices.Equal(untried, c.untried) {
			t.Errorf("%v: modest %v, not tried %v; want %v, %v", c.verdicts, modest, untried, c.modest, c.untried)
		}
	}
}

// Goal: a short run does not call modest what only a longer one could have shown. Method:
// of two scenarios that break an assumption only the harmless one is chosen, on a system
// that can have both.
func TestNothingIsModestWhileAScenarioThatBreaksItIsLeftOut(t *testing.T) {
	m := found(locker.Guarantees{Exclusion: locker.PromptHolder | locker.DurableServer}, Kept, Kept, Kept)
	unheard := Scenario{Name: "amnesia unheard", Breaks: locker.DurableServer}
	want := []Unproven{{"it", "exclusion", locker.PromptHolder}}
	if modest, untried := m.unproven(append(m.Scenarios, unheard)); !slices.Equal(modest, want) || len(untried) > 0 {
		t.Errorf("left out: modest %v, not tried %v", modest, untried)
	}
	m.Scenarios = append(m.Scenarios, unheard)
	for verdict, leans := range map[Verdict]locker.Assumptions{
		Skipped: locker.PromptHolder | locker.DurableServer, Kept: locker.PromptHolder | locker.DurableServer,
		NotPlayed: locker.PromptHolder, Fenced: locker.PromptHolder,
	} {
		m.Cells = append(m.Cells[:3:3], Cell{Scenario: unheard.Name, Subject: "it", Verdict: verdict})
		if modest, _ := m.unproven(m.Scenarios); !slices.Equal(modest, []Unproven{{"it", "exclusion", leans}}) {
			t.Errorf("%s: modest %v, want %v", verdict, modest, leans)
		}
	}
}

// A store that grants nothing before the fault cannot blame it.
func TestAStandstillBeforeTheFaultIsAFalseClaim(t *testing.T) {
	still := &standstill{errors.New("A got no lock")}
	sc := Scenario{Name: "amnesia", Breaks: locker.DurableServer}
	p := &play{History: &history.History{}, scenario: sc}
	p.Arrange("a snapshot is taken", func() error { return nil })
	if c := p.cell(Cell{}, Subject{}, still); c.Verdict != FalseClaim {
		t.Errorf("before the fault: %s (%s)", c.Verdict, c.Why)
	}
	p.Break("a server forgets", func() error { return nil })
	if c := p.cell(Cell{}, Subject{}, still); c.Verdict != Unavailable || !c.Standstill || c.Waited != patience {
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
