package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockstile/locker/proof/matrix"
)

// Brief writes a small part of the matrix as Markdown: only these subjects, and
// only the scenarios that break an assumption, or that not all of these kept. Those that
// none of these has are named below. page is the path of the whole, as [Markdown]
// writes it, for links. The marks are explained above the table.
func Brief(w io.Writer, m *matrix.Matrix, page string, subjects []matrix.Subject) {
	var all []matrix.Cell
	for _, sc := range m.Scenarios {
		all = append(all, cellsOf(m, sc, subjects)...)
	}
	briefLegend(w, page, all)
	fmt.Fprint(w, "| |")
	for _, s := range subjects {
		fmt.Fprintf(w, " %s |", s.Name)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat(":-:|", len(subjects)))
	keptByAll, asExclusive := 0, 0
	var others []string
	for _, sc := range m.Scenarios {
		cells, link := cellsOf(m, sc, subjects), fmt.Sprintf("[%s](%s#%s)", sc.Name, page, section(m, sc))
		switch somewhere := slices.ContainsFunc(cells, played); {
		case sc.Like != "" && alike(m, sc, cells):
			if somewhere {
				asExclusive++
			}
		case !somewhere:
			others = append(others, link)
		case sc.Breaks == 0 && slices.ContainsFunc(cells, kept) && !slices.ContainsFunc(cells, noteworthy):
			keptByAll++
		default:
			fmt.Fprintf(w, "| %s |", link)
			for _, c := range cells {
				fmt.Fprintf(w, " %s |", mark(c))
			}
			fmt.Fprintln(w)
		}
	}
	if keptByAll > 0 {
		fmt.Fprintf(w, "\n%d further scenarios (a network that is cut, messages that are lost or late, a dead waiter, a herd, …): kept by all.\n", keptByAll)
	}
	if asExclusive > 0 {
		fmt.Fprintf(w, "\n%d further scenarios with readers and writers, and with slots: as with exclusive locks, where there are such locks.\n", asExclusive)
	}
	if len(others) > 0 {
		fmt.Fprintf(w, "\nFor other configurations: %s.\n", strings.Join(others, ", "))
	}
}

// alike reports whether a scenario went with other kinds of locks as it did with exclusive
// ones, wherever it was played.
func alike(m *matrix.Matrix, sc matrix.Scenario, cells []matrix.Cell) bool {
	return !slices.ContainsFunc(cells, func(c matrix.Cell) bool {
		return played(c) && mark(c) != mark(m.Cell(sc.Like, c.Subject))
	})
}

func cellsOf(m *matrix.Matrix, sc matrix.Scenario, subjects []matrix.Subject) (cells []matrix.Cell) {
	for _, s := range subjects {
		cells = append(cells, m.Cell(sc.Name, s.Name))
	}
	return cells
}

// noteworthy reports whether the scenario is neither kept nor skipped.
func noteworthy(c matrix.Cell) bool { return mark(c) != "✓" && played(c) }

// played reports whether the scenario is not skipped.
func played(c matrix.Cell) bool { return mark(c) != "–" }

// kept reports whether the scenario is kept, in time or not.
func kept(c matrix.Cell) bool { return mark(c) == "✓" }
