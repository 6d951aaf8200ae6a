package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// legend says what a cell means, in the same words in a terminal, on the pages and in README.md.
var legend = []struct {
	Verdict     matrix.Verdict
	Word, Means string
}{
	{matrix.Kept, "kept", "One process at a time believed that it held the lock, and tokens were in order."},
	{matrix.Unavailable, "kept, 1.5s", "As kept, but after the fault nobody could lock for that long."},
	{matrix.Fenced, "fenced", "Two believed it at once, or a holder wrote too late, as declared. The guard in the storage refused every stale write that it could: a guard learns of a holder only when that holder claims the resource."},
	{matrix.Broken, "broken", "Tokens went back, or the storage accepted a stale write, as declared."},
	{matrix.FalseClaim, "FALSE CLAIM", "Something broke that the declaration promises."},
	{matrix.Skipped, "–", "The fault does not exist there, or could not be injected: the findings say why."},
	{matrix.NotPlayed, "not played", "Something went wrong that has nothing to do with the fault, so the run shows nothing."},
}

// Word is the verdict in the word that tables show and the legend explains.
func Word(c matrix.Cell) string {
	switch c.Verdict {
	case matrix.Skipped:
		if c.Why == judge.NoSuchKind {
			return judge.NoSuchKind
		}
		return "–"
	case matrix.Unavailable:
		if c.Standstill {
			return "kept, standstill"
		}
		return fmt.Sprintf("kept, %.1fs", c.Waited.Seconds())
	}
	return string(c.Verdict)
}

// mark is the cell in the word of the matrix in brief.
func mark(c matrix.Cell) string {
	switch c.Verdict {
	case matrix.Kept, matrix.Unavailable:
		return "✓"
	case matrix.Fenced:
		return string(matrix.Fenced)
	case matrix.Skipped:
		return "–"
	case matrix.NotPlayed:
		return "?"
	}
	return "**" + string(c.Verdict) + "**"
}

// textLegend explains the words that occur.
func textLegend(w io.Writer, m *matrix.Matrix) {
	for _, l := range legend {
		if slices.ContainsFunc(m.Cells, func(c matrix.Cell) bool { return c.Verdict == l.Verdict }) {
			fmt.Fprintf(w, "%-12s  %s\n", l.Word, l.Means)
		}
	}
}

func markdownWords() string {
	var text strings.Builder
	for _, l := range legend {
		fmt.Fprintf(&text, "- *%s*: %s\n", l.Word, l.Means)
	}
	return text.String()
}

// briefLegend explains the marks of these cells. page is where the findings are.
func briefLegend(w io.Writer, page string, cells []matrix.Cell) {
	for _, l := range legend {
		one := matrix.Cell{Verdict: l.Verdict}
		if l.Verdict == matrix.Unavailable || !slices.ContainsFunc(cells, func(c matrix.Cell) bool { return mark(c) == mark(one) }) {
			continue // time is no mark
		}
		means := strings.Replace(l.Means, "the findings", "[the findings]("+page+"#findings)", 1)
		fmt.Fprintf(w, "- **%s** %s\n", strings.Trim(mark(one), "*"), means)
	}
	fmt.Fprintln(w)
}
