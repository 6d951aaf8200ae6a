package matrix

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteBrief writes a small part of the matrix as Markdown: only these subjects, and
// only the scenarios that break an assumption, or that not all of these kept. Those that
// none of these has are named below. page is the path of the whole, as WriteMarkdown
// writes it, for links. The marks are explained above the table.
func (m *Matrix) WriteBrief(w io.Writer, page string, subjects []Subject) {
	var all []Cell
	for _, sc := range m.Scenarios {
		all = append(all, m.row(sc, subjects)...)
	}
	briefLegend(w, page, all)
	fmt.Fprint(w, "| |")
	for _, s := range subjects {
		fmt.Fprintf(w, " %s |", s.Name)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat(":-:|", len(subjects)))
	kept, alike := 0, 0
	var others []string
	for _, sc := range m.Scenarios {
		cells, link := m.row(sc, subjects), fmt.Sprintf("[%s](%s#%s)", sc.Name, page, m.section(sc))
		switch played := slices.ContainsFunc(cells, Cell.played); {
		case sc.like != "" && m.alike(sc, cells):
			if played {
				alike++
			}
		case !played:
			others = append(others, link)
		case sc.Breaks == 0 && slices.ContainsFunc(cells, Cell.kept) && !slices.ContainsFunc(cells, Cell.noteworthy):
			kept++
		default:
			fmt.Fprintf(w, "| %s |", link)
			for _, c := range cells {
				fmt.Fprintf(w, " %s |", c.mark())
			}
			fmt.Fprintln(w)
		}
	}
	if kept > 0 {
		fmt.Fprintf(w, "\n%d further scenarios (a network that is cut, messages that are lost or late, a dead waiter, a herd, …): kept by all.\n", kept)
	}
	if alike > 0 {
		fmt.Fprintf(w, "\n%d further scenarios with readers and writers, and with slots: as with exclusive locks, where there are such locks.\n", alike)
	}
	if len(others) > 0 {
		fmt.Fprintf(w, "\nFor other configurations: %s.\n", strings.Join(others, ", "))
	}
}

// alike reports whether a scenario went with other kinds of locks as it did with exclusive
// ones, wherever it was played.
func (m *Matrix) alike(sc Scenario, cells []Cell) bool {
	return !slices.ContainsFunc(cells, func(c Cell) bool {
		return c.played() && c.mark() != m.Cell(sc.like, c.Subject).mark()
	})
}

func (m *Matrix) row(sc Scenario, subjects []Subject) (cells []Cell) {
	for _, s := range subjects {
		cells = append(cells, m.Cell(sc.Name, s.Name))
	}
	return cells
}

// noteworthy reports whether the scenario is neither kept nor skipped.
func (c Cell) noteworthy() bool { return c.mark() != "✓" && c.played() }

// played reports whether the scenario is not skipped.
func (c Cell) played() bool { return c.mark() != "–" }

// kept reports whether the scenario is kept, in time or not.
func (c Cell) kept() bool { return c.mark() == "✓" }
