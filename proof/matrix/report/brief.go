package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix"
)

// Brief writes the matrix of these subjects as a small Markdown table: a row for each assumption that
// scenarios break, with the worst that came of them. page is the path of the whole, as [Markdown]
// writes it. The marks are explained above the table.
func Brief(w io.Writer, m *matrix.Matrix, page string, subjects []matrix.Subject) {
	var shown []matrix.Cell
	var rows strings.Builder
	broken, scenarios := assumptions(m)
	for _, b := range broken {
		fmt.Fprintf(&rows, "| %s | %d |", fault(b), scenarios[b])
		for _, s := range subjects {
			c := worst(m, b, s)
			shown = append(shown, c)
			fmt.Fprintf(&rows, " %s |", mark(c))
		}
		rows.WriteString("\n")
	}
	briefLegend(w, page, shown)
	fmt.Fprintf(w, "| what is broken | [scenarios](%s#measured) |", page)
	for _, s := range subjects {
		fmt.Fprintf(w, " %s |", s.Name)
	}
	fmt.Fprintf(w, "\n|---|---:|%s\n%s", strings.Repeat(":-:|", len(subjects)), &rows)
}

// fault says what a scenario breaks.
func fault(broken locker.Assumptions) string {
	if broken == 0 {
		return "nothing that a backend may assume: a network that is cut, messages that are lost or late, a dead waiter, …"
	}
	return broken.String()
}

// assumptions returns what scenarios break, with what no backend may assume at the end, and how many
// scenarios break each.
func assumptions(m *matrix.Matrix) (broken []locker.Assumptions, scenarios map[locker.Assumptions]int) {
	scenarios = make(map[locker.Assumptions]int)
	for _, sc := range m.Scenarios {
		if scenarios[sc.Breaks]++; scenarios[sc.Breaks] == 1 && sc.Breaks != 0 {
			broken = append(broken, sc.Breaks)
		}
	}
	if scenarios[0] > 0 {
		broken = append(broken, 0)
	}
	return broken, scenarios
}

// worst returns the worst cell of a subject among the scenarios that break one thing.
func worst(m *matrix.Matrix, broken locker.Assumptions, s matrix.Subject) matrix.Cell {
	order := []matrix.Verdict{matrix.Skipped, matrix.Kept, matrix.Unavailable, matrix.Fenced, matrix.Broken, matrix.NotPlayed, matrix.FalseClaim}
	found := matrix.Cell{Verdict: matrix.Skipped}
	for _, sc := range m.Scenarios {
		if c := m.Cell(sc.Name, s.Name); sc.Breaks == broken && slices.Index(order, c.Verdict) > slices.Index(order, found.Verdict) {
			found = c
		}
	}
	return found
}
