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
	var rows []matrix.Cell
	broken, scenarios := assumptions(m)
	for _, b := range broken {
		for _, s := range subjects {
			rows = append(rows, worst(m, b, s))
		}
	}
	briefLegend(w, page, rows)
	fmt.Fprintf(w, "| what is broken | [scenarios](%s#measured) |", page)
	for _, s := range subjects {
		fmt.Fprintf(w, " %s |", s.Name)
	}
	fmt.Fprintf(w, "\n|---|---:|%s\n", strings.Repeat(":-:|", len(subjects)))
	for i, b := range broken {
		fmt.Fprintf(w, "| %s | %d |", fault(b), scenarios[i])
		for _, c := range rows[i*len(subjects) : (i+1)*len(subjects)] {
			fmt.Fprintf(w, " %s |", mark(c))
		}
		fmt.Fprintln(w)
	}
}

// fault says what a scenario breaks.
func fault(broken locker.Assumptions) string {
	if broken == 0 {
		return "nothing that a backend may assume: a network that is cut, messages that are lost or late, a dead waiter, …"
	}
	return broken.String()
}

// assumptions returns what scenarios break, what no backend may assume last, and how many scenarios
// break it.
func assumptions(m *matrix.Matrix) (broken []locker.Assumptions, scenarios []int) {
	count := make(map[locker.Assumptions]int)
	for _, sc := range m.Scenarios {
		if count[sc.Breaks]++; count[sc.Breaks] == 1 && sc.Breaks != 0 {
			broken = append(broken, sc.Breaks)
		}
	}
	if count[0] > 0 {
		broken = append(broken, 0)
	}
	for _, b := range broken {
		scenarios = append(scenarios, count[b])
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
