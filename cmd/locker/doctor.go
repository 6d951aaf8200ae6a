package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker/internal/doctor"
)

type doctorCommand struct {
	*backend
	inJSON
}

// doctorTime bounds a look at a store. Several servers are asked, one after the other,
// and some may not answer.
const doctorTime = 60 * time.Second

func (c *doctorCommand) do() error {
	ctx, cancel := context.WithTimeout(context.Background(), doctorTime)
	defer cancel()
	report, err := doctor.Examine(ctx, c.url())
	err = c.advise(err)
	if err != nil && len(report.Findings)+len(report.Checked) == 0 {
		return err
	}
	if terr := tell(c.json, report, reportText(report)); terr != nil {
		return terr
	}
	if err == nil && report.Danger() {
		return exit{status: exitBroken}
	}
	return err
}

func reportText(r *doctor.Report) string {
	var b strings.Builder
	byAlphabet := func(a, b doctor.Finding) int { return cmp.Compare(a.Severity, b.Severity) } // danger, and then note
	for _, f := range slices.SortedStableFunc(slices.Values(r.Findings), byAlphabet) {
		writeFinding(&b, f)
	}
	for _, c := range r.Checked {
		word := "fine"
		if slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool { return f.Where == c.Where }) {
			word = "also checked"
		}
		fmt.Fprintf(&b, "%s: %s: %s\n", word, oneLine(c.Where), oneLine(strings.Join(c.What, ", ")))
	}
	return b.String()
}

func writeFinding(b *strings.Builder, f doctor.Finding) {
	fmt.Fprintf(b, "%s: %s: %s\n        which means: %s\n", f.Severity, oneLine(f.Where), oneLine(f.What), oneLine(f.Means))
	if f.Mend != "" {
		fmt.Fprintf(b, "        mend it: %s\n", oneLine(f.Mend))
	}
	b.WriteString("\n")
}

// oneLine keeps what a server or a path says from writing to the terminal what
// looks like something else.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
