package matrix

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// legend says what a cell means, in the same words in a terminal, on the pages and in README.md.
var legend = []struct {
	Verdict     Verdict
	Word, Means string
}{
	{Kept, "kept", "One process at a time believed that it held the lock, and tokens were in order."},
	{Unavailable, "kept, 1.5s", "As kept, but after the fault nobody could lock for that long."},
	{Fenced, "fenced", "Two believed it at once, or a holder wrote too late, as declared. The guard in the storage refused every stale write that it could: a guard learns of a holder only when that holder claims the resource."},
	{Broken, "broken", "Tokens went back, or the storage accepted a stale write, as declared."},
	{FalseClaim, "FALSE CLAIM", "Something broke that the declaration promises."},
	{Skipped, "–", "The fault does not exist there, or could not be injected: the findings say why."},
	{NotPlayed, "not played", "Something went wrong that has nothing to do with the fault, so the run shows nothing."},
}

// Word is the verdict in the word that tables show and the legend explains.
func (c Cell) Word() string {
	switch c.Verdict {
	case Skipped:
		if c.Why == noSuchKind {
			return noSuchKind
		}
		return "–"
	case Unavailable:
		if c.Waited >= patience {
			return "kept, standstill"
		}
		return fmt.Sprintf("kept, %.1fs", c.Waited.Seconds())
	}
	return string(c.Verdict)
}

// mark is the cell in the word of the matrix in brief.
func (c Cell) mark() string {
	switch c.Verdict {
	case Kept, Unavailable:
		return "✓"
	case Fenced:
		return string(Fenced)
	case Skipped:
		return "–"
	case NotPlayed:
		return "?"
	}
	return "**" + string(c.Verdict) + "**"
}

// textLegend explains the words that occur.
func (m *Matrix) textLegend(w io.Writer) {
	for _, l := range legend {
		if len(m.with(l.Verdict)) > 0 {
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
func briefLegend(w io.Writer, page string, cells []Cell) {
	for _, l := range legend {
		one := Cell{Verdict: l.Verdict}
		if l.Verdict == Unavailable || !slices.ContainsFunc(cells, func(c Cell) bool { return c.mark() == one.mark() }) {
			continue // time is no mark
		}
		means := strings.Replace(l.Means, "the findings", "[the findings]("+page+"#findings)", 1)
		fmt.Fprintf(w, "- **%s** %s\n", strings.Trim(one.mark(), "*"), means)
	}
	fmt.Fprintln(w)
}
