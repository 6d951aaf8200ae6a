package report

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/internal/history"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// A row stands for several scenarios. It must not hide one that broke.
func TestBriefHidesNothingThatBroke(t *testing.T) {
	for _, c := range []struct {
		verdicts []matrix.Verdict
		want     string
	}{
		{[]matrix.Verdict{matrix.Kept, matrix.Skipped}, "✓"},
		{[]matrix.Verdict{matrix.Skipped, matrix.Skipped}, "–"},
		{[]matrix.Verdict{matrix.Unavailable, matrix.Fenced}, "fenced"},
		{[]matrix.Verdict{matrix.Fenced, matrix.Broken, matrix.Kept}, "**broken**"},
		{[]matrix.Verdict{matrix.NotPlayed, matrix.Broken}, "?"},
		{[]matrix.Verdict{matrix.FalseClaim, matrix.NotPlayed}, "**FALSE CLAIM**"},
	} {
		m := some(c.verdicts...)
		for i := range m.Scenarios {
			m.Scenarios[i].Breaks = locker.PromptHolder
		}
		var text strings.Builder
		Brief(&text, m, "page", m.Subjects)
		if row := "\n| prompt holder | 3 | " + c.want + " |\n"; !strings.Contains(text.String(), row) {
			t.Errorf("%v: no row %q in\n%s", c.verdicts, row, &text)
		}
	}
}

func TestBriefHasARowForEachAssumption(t *testing.T) {
	var text strings.Builder
	m := some(matrix.Fenced, matrix.Broken, matrix.Kept)
	Brief(&text, m, "page", m.Subjects)
	for _, row := range []string{"| prompt holder | 1 | fenced |", "| durable server, forward clock | 1 | **broken** |", "late, a dead waiter, … | 1 | ✓ |"} {
		if !strings.Contains(text.String(), row+"\n") {
			t.Errorf("no row %q in\n%s", row, &text)
		}
	}
}

func TestAFaultThatIsNotThereIsNamedOnceForAllKinds(t *testing.T) {
	m := some(matrix.Kept, matrix.Skipped)
	m.Scenarios = append(m.Scenarios[:2], matrix.Scenario{Name: "amnesia (slots)", Like: "amnesia"}, matrix.Scenario{Name: "pause (slots)", Like: "pause"})
	m.Cells[1].Why = "no disk"
	for _, sc := range m.Scenarios[2:] {
		m.Cells = append(m.Cells, matrix.Cell{Scenario: sc.Name, Subject: "it", Verdict: matrix.Skipped, Why: "no disk"})
	}
	m.Cells = append(m.Cells, matrix.Cell{Scenario: "pause (slots)", Subject: "it", Verdict: matrix.Skipped, Why: judge.NoSuchKind})
	if got, want := strings.Join(skips(m), "; "), "no disk: amnesia, pause (slots); on it"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

// Goal: what the line of the run has said is not said again when the run is interrupted.
func TestAFalseClaimOfARunThatWasInterruptedIsToldOnce(t *testing.T) {
	m := some(matrix.FalseClaim, matrix.NotPlayed)
	m.Cells[0].Why, m.Cells[1].Why, m.Cells[0].History = "two holders for 1s", "interrupted", new(history.History)
	m.Cells[0].History.Marks = []history.Mark{{Text: "A is stopped"}}
	var text strings.Builder
	tell, _ := Progress(&text, 3)
	tell(m.Cells[0])
	FalseClaims(&text, m)
	if want := "  1/3  it, pause: FALSE CLAIM: two holders for 1s\n\nThe false claim of it in pause:\n        0s  A is stopped\n"; text.String() != want {
		t.Errorf("it is\n%s\nand not\n%s", &text, want)
	}
}

// Goal: a reason that many scenarios have is read once, and no scenario is left out.
func TestWhatCouldNotBePlayedForOneReasonIsOneLine(t *testing.T) {
	m := some(matrix.NotPlayed, matrix.NotPlayed, matrix.NotPlayed)
	m.Cells[0].Why, m.Cells[1].Why, m.Cells[2].Why = "nobody listens", "no disk", "nobody listens"
	m.Cells = append(m.Cells, matrix.Cell{Scenario: "pause", Subject: "other", Verdict: matrix.NotPlayed, Why: "no disk"})
	var text strings.Builder
	Text(&text, m)
	const want = "\nNot played: it, 2 scenarios (pause, herd): nobody listens\n\nNot played: it, amnesia: no disk\n\nNot played: other, pause: no disk\n"
	if !strings.HasSuffix(text.String(), want) {
		t.Errorf("it does not end with %q:\n%s", want, &text)
	}
}

func TestACellIsShownInAWord(t *testing.T) {
	for want, c := range map[string]matrix.Cell{
		"no such kind":     {Verdict: matrix.Skipped, Why: judge.NoSuchKind},
		"–":                {Verdict: matrix.Skipped, Why: "no disk"},
		"kept, standstill": {Verdict: matrix.Unavailable, Waited: time.Minute, Standstill: true},
		"kept, 1.5s":       {Verdict: matrix.Unavailable, Waited: 1500 * time.Millisecond},
		"kept":             {Verdict: matrix.Kept},
	} {
		if got := Word(c); got != want {
			t.Errorf("%+v is shown as %q, not %q", c, got, want)
		}
	}
}

func TestEveryReportSaysHowManyUpdatesWereLost(t *testing.T) {
	const told = "updates lost without the guard: 1 of 3; with it: 0 of 2"
	h := &history.History{Updates: &history.Updates{
		Confirmed: history.Sets{Unguarded: []int{1, 2, 3}, Guarded: []int{1, 3}},
		Final:     history.Sets{Unguarded: []int{1, 3}, Guarded: []int{1, 3}},
	}}
	m := &matrix.Matrix{
		Subjects: []matrix.Subject{{Name: "it"}}, Scenarios: []matrix.Scenario{{Name: "set"}},
		Cells: []matrix.Cell{{Scenario: "set", Subject: "it", Verdict: matrix.Fenced, History: h}},
	}
	var text, markdown, html strings.Builder
	Text(&text, m)
	Markdown(&markdown, m)
	if err := HTML(&html, m); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		text.String(): "\nit, set: " + told + "\n", markdown.String(): " | fenced; " + told + " |", html.String(): ">fenced; " + told + "</a>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
}

// some returns a matrix of one subject with these verdicts.
func some(verdicts ...matrix.Verdict) *matrix.Matrix {
	m := &matrix.Matrix{Subjects: []matrix.Subject{{Name: "it"}}, Scenarios: []matrix.Scenario{
		{Name: "pause", Breaks: locker.PromptHolder},
		{Name: "amnesia", Breaks: locker.DurableServer | locker.ForwardClock},
		{Name: "herd"},
	}}
	for i, v := range verdicts {
		m.Cells = append(m.Cells, matrix.Cell{Scenario: m.Scenarios[i].Name, Subject: "it", Verdict: v})
	}
	return m
}
