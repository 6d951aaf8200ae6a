package matrix

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker"
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

// The line that counts what all have kept must not hide anything that broke.
func TestBriefHidesNothingThatBroke(t *testing.T) {
	for _, c := range []struct {
		verdicts []Verdict
		rows     []string
		kept     bool
	}{
		{[]Verdict{Fenced, Broken, Kept}, []string{"| [pause](page#pause) | fenced |", "| [amnesia](page#amnesia) | **broken** |"}, true},
		{[]Verdict{Kept, Skipped, Unavailable}, []string{"| [pause](page#pause) | ✓ |", "For other configurations: [amnesia](page#amnesia)."}, true},
		{[]Verdict{Kept, Kept, FalseClaim}, []string{"| [herd](page#herd) | **FALSE CLAIM** |"}, false},
		{[]Verdict{Kept, Skipped, Skipped}, []string{"For other configurations: [amnesia](page#amnesia), [herd](page#herd)."}, false},
		{[]Verdict{Kept, Kept, NotPlayed}, []string{"| [herd](page#herd) | ? |"}, false},
	} {
		m := found(locker.Guarantees{}, c.verdicts...)
		var text strings.Builder
		m.WriteBrief(&text, "page", m.Subjects)
		for _, row := range c.rows {
			if !strings.Contains(text.String(), row+"\n") {
				t.Errorf("%v: no row %q in\n%s", c.verdicts, row, &text)
			}
		}
		if strings.Contains(text.String(), "\n1 further scenarios") != c.kept {
			t.Errorf("%v: kept by all, or not:\n%s", c.verdicts, &text)
		}
	}
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

func TestAFaultThatIsNotThereIsNamedOnceForAllKinds(t *testing.T) {
	m := found(locker.Guarantees{}, Kept, Skipped)
	m.Scenarios = append(m.Scenarios[:2], Scenario{Name: "amnesia (slots)", like: "amnesia"}, Scenario{Name: "pause (slots)", like: "pause"})
	m.Cells[1].Why = "no disk"
	for _, sc := range m.Scenarios[2:] {
		m.Cells = append(m.Cells, Cell{Scenario: sc.Name, Subject: "it", Verdict: Skipped, Why: "no disk"})
	}
	m.Cells = append(m.Cells, Cell{Scenario: "pause (slots)", Subject: "it", Verdict: Skipped, Why: noSuchKind})
	if got, want := strings.Join(m.skips(), "; "), "no disk: amnesia, pause (slots); on it"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
