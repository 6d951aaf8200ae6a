// Package report writes what [matrix.Run] and [matrix.Soak] have found: as text, as Markdown and as one HTML page.
// It decides nothing: the verdicts are in the cells.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// Progress returns a [matrix.Settings].Done that writes a line for each of so many cells, and what says, when
// the run is over, how many lines there are.
func Progress(w io.Writer, cells int) (tell func(matrix.Cell), told func() int) {
	done := 0
	tell = func(c matrix.Cell) {
		done++
		why := ""
		if c.Why != "" && c.Why != Word(c) {
			why = ": " + c.Why
		}
		_, _ = fmt.Fprintf(w, "%3d/%d  %s, %s: %s%s\n", done, cells, c.Subject, c.Scenario, Word(c), why) // without a reader there is nobody to tell
	}
	return tell, func() int { return done }
}

// told is the word, and what became of updates.
func told(c matrix.Cell) string { return judge.Joined(Word(c), c.History.LostUpdates()) }

// Text writes the matrix for a terminal: a column for each subject.
func Text(w io.Writer, m *matrix.Matrix) {
	width := 0
	for _, s := range m.Scenarios {
		width = max(width, len(s.Name))
	}
	for i, s := range m.Subjects {
		fmt.Fprintf(w, "%2d  %s: %s\n", i+1, s.Name, s.About)
	}
	fmt.Fprintln(w)
	textLegend(w, m)
	fmt.Fprintf(w, "\n%-*s", width+2, "")
	for i := range m.Subjects {
		fmt.Fprintf(w, "%-16d", i+1)
	}
	fmt.Fprintln(w)
	for _, sc := range m.Scenarios {
		fmt.Fprintf(w, "%-*s", width+2, sc.Name)
		for _, sub := range m.Subjects {
			fmt.Fprintf(w, "%-16s", Word(m.Cell(sc.Name, sub.Name)))
		}
		fmt.Fprintln(w)
	}
	for _, c := range m.Cells {
		if updates := c.History.LostUpdates(); updates != "" {
			fmt.Fprintf(w, "\n%s, %s: %s\n", c.Subject, c.Scenario, updates)
		}
	}
	findings(w, m, "", "")
}

// findings says what is wrong, what was skipped, and why. It puts each history
// between open and end.
func findings(w io.Writer, m *matrix.Matrix, open, end string) {
	for _, c := range m.FalseClaims() {
		fmt.Fprintf(w, "\nFALSE CLAIM: %s, %s: %s\n%s%s%s", c.Subject, c.Scenario, c.Why, open, c.History.Text(), end)
	}
	for _, line := range notPlayed(m) {
		fmt.Fprintf(w, "\nNot played: %s\n", line)
	}
	for _, line := range skips(m) {
		fmt.Fprintf(w, "\nSkipped (–): %s\n", line)
	}
	for _, mod := range m.Modest {
		fmt.Fprintf(w, "\nModest: %v. Every scenario that breaks it was played, where it can be, and did no harm.\n", mod)
	}
}

// FalseClaims writes what happened in each cell with a false claim, for a terminal. It is for a run that was
// interrupted: why each is one has been said when it was played.
func FalseClaims(w io.Writer, m *matrix.Matrix) {
	for _, c := range m.FalseClaims() {
		fmt.Fprintf(w, "\nThe false claim of %s in %s:\n%s", c.Subject, c.Scenario, c.History.Text())
	}
}

// notPlayed says for each subject and reason which scenarios could not be played.
func notPlayed(m *matrix.Matrix) []string {
	type reason struct{ subject, why string }
	var reasons []reason
	scenarios := make(map[reason][]string)
	for _, c := range m.NotPlayed() {
		r := reason{c.Subject, c.Why}
		if scenarios[r] == nil {
			reasons = append(reasons, r)
		}
		scenarios[r] = append(scenarios[r], c.Scenario)
	}
	var lines []string
	for _, r := range reasons {
		which := strings.Join(scenarios[r], ", ")
		if n := len(scenarios[r]); n > 1 {
			which = fmt.Sprintf("%d scenarios (%s)", n, which)
		}
		lines = append(lines, fmt.Sprintf("%s, %s: %s", r.subject, which, r.why))
	}
	return lines
}

// skips says for each reason which scenarios were skipped, and on which subjects. A scenario
// stands for those that are like it.
func skips(m *matrix.Matrix) []string {
	var whys []string
	scenarios, subjects := make(map[string][]string), make(map[string][]string)
	like := make(map[string]string)
	for _, sc := range m.Scenarios {
		like[sc.Name] = sc.Like
	}
	for _, c := range m.Skipped() {
		if c.Why == judge.NoSuchKind {
			continue // the table says so
		}
		if !slices.Contains(whys, c.Why) {
			whys = append(whys, c.Why)
		}
		if names := scenarios[c.Why]; !slices.Contains(names, c.Scenario) && !slices.Contains(names, like[c.Scenario]) {
			scenarios[c.Why] = append(scenarios[c.Why], c.Scenario)
		}
		if !slices.Contains(subjects[c.Why], c.Subject) {
			subjects[c.Why] = append(subjects[c.Why], c.Subject)
		}
	}
	for i, why := range whys {
		whys[i] = fmt.Sprintf("%s: %s; on %s", why, strings.Join(scenarios[why], ", "), strings.Join(subjects[why], "; "))
	}
	return whys
}

// Markdown writes the matrix as docs/GUARANTEES.md.
func Markdown(w io.Writer, m *matrix.Matrix) {
	MarkdownUnder(w, m, `# Guarantees, declared and measured

Made by `+"`make compare`"+`: real servers, holders that are real
processes, one broken assumption at a time. Do not edit.
`)
}

// MarkdownUnder is [Markdown] below another head, which says what the page is
// and how it was made.
func MarkdownUnder(w io.Writer, m *matrix.Matrix, head string) {
	fmt.Fprint(w, head, "\n", markdownWords(), markdownLegend)
	declared(w, m)
	measured(w, m)
	scenarios(w, m)
	fmt.Fprintf(w, "\n## Findings\n")
	if len(m.FalseClaims())+len(m.Modest) == 0 {
		fmt.Fprint(w, "\nNo false claim", noneModest(m), ".\n")
	}
	findings(w, m, "\n```\n", "```\n")
	for _, u := range m.Untried {
		fmt.Fprintf(w, "\nNot tried: %v. Nothing that breaks it could be injected there.\n", u)
	}
}

// noneModest is what is said where nothing is modest: only a run of all scenarios shows it.
func noneModest(m *matrix.Matrix) string {
	if !m.Complete() {
		return ""
	}
	return ", and no declaration that is weaker than what was measured"
}

const markdownLegend = `- *updates lost*: an update is an element that a holder has added to a set, and whose write the storage has
  confirmed. It is lost if the set does not have it in the end. Each holder writes to a storage without a guard and to
  one with a guard, as in [Jepsen's tests of etcd's locks](https://jepsen.io/analyses/etcd-3.4.3).
- A lock inside a transaction needs no guard, because its holder writes in the same transaction. A holder and
  its writes count if they were committed, and the database says who saw which of them.
- *no such kind*: the backend does not declare shared locks, or slots, and refuses them. Elsewhere *kept* says that
  those who exclude each other did not hold at once: a writer and anybody else, or two with one slot. The storage has a guard
  with two marks, so that readers are refused, too, if they come too late.
- *(reader first)*: A and C share the lock, to read; B and D want it exclusively, to write. *(writer first)*: the other way round.
  *(slots)*: the lock has two slots, and somebody else has one of them all the time.
`

func declared(w io.Writer, m *matrix.Matrix) {
	fmt.Fprint(w, "\n## Declared\n\n| backend | configuration | exclusion assumes | tokens assume | fair | frees a dead holder | tolerates | kinds |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range m.Subjects {
		g := s.Guarantees
		fmt.Fprintf(w, "| %s | %s | %v | %v | %s | %v | %d | %s |\n", s.Name, s.About, g.Exclusion, g.Tokens, yes(g.Fair), g.FreedBy, g.ServerFailures, kinds(s))
	}
}

// kinds are the kinds of locks that the subject declares, in words.
func kinds(s matrix.Subject) string {
	kinds := locker.KindExclusive.String()
	if s.Guarantees.Shared {
		kinds += ", " + locker.KindShared.String()
	}
	if s.Guarantees.Slots {
		kinds += ", " + locker.KindSlots.String()
	}
	return kinds
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func measured(w io.Writer, m *matrix.Matrix) {
	fmt.Fprint(w, "\n## Measured\n\n| scenario | breaks |")
	for _, s := range m.Subjects {
		fmt.Fprintf(w, " %s |", s.Name)
	}
	fmt.Fprintf(w, "\n|---|---|%s\n", strings.Repeat("---|", len(m.Subjects)))
	for _, sc := range m.Scenarios {
		fmt.Fprintf(w, "| [%s](#%s) | %v |", sc.Name, section(m, sc), broken(sc.Breaks))
		for _, sub := range m.Subjects {
			c := m.Cell(sc.Name, sub.Name)
			text := told(c)
			if c.Verdict == matrix.FalseClaim {
				text = "**" + text + "**"
			}
			fmt.Fprintf(w, " %s |", text)
		}
		fmt.Fprintln(w)
	}
}

func broken(a locker.Assumptions) string {
	if a == 0 {
		return "–"
	}
	return a.String()
}

func scenarios(w io.Writer, m *matrix.Matrix) {
	fmt.Fprint(w, "\n## Scenarios\n")
	for _, sc := range m.Scenarios {
		if section(m, sc) != anchor(sc.Name) {
			continue
		}
		breaks := "Every lock must withstand this."
		if sc.Breaks != 0 {
			breaks = fmt.Sprintf("Breaks: %v.", sc.Breaks)
		}
		fmt.Fprintf(w, "\n### %s\n\n%s %s\n", sc.Name, sc.Story, breaks)
	}
}

// section is where a scenario is told, for a link: that of exclusive locks tells it for all
// kinds.
func section(m *matrix.Matrix, sc matrix.Scenario) string {
	if sc.Like != "" && slices.ContainsFunc(m.Scenarios, func(other matrix.Scenario) bool { return other.Name == sc.Like }) {
		return anchor(sc.Like)
	}
	return anchor(sc.Name)
}

// anchor is the name of a heading in a link, as GitHub makes it.
func anchor(heading string) string {
	return strings.NewReplacer(" ", "-", ",", "", "+", "", "'", "", "(", "", ")", "").Replace(strings.ToLower(heading))
}
