package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/doctor"
)

type doctorCommand struct {
	*backend
	json bool
}

func newDoctor(b *backend) *doctorCommand { return &doctorCommand{backend: b} }

// doctorTime bounds a look at a store. Several servers are asked, one after the other,
// and some may not answer.
const doctorTime = 60 * time.Second

func (c *doctorCommand) do() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), doctorTime)
	defer cancel()
	redis.SetLogger(silent{})
	report, err := doctor.Examine(ctx, c.url())
	err = c.advise(err)
	if err != nil && len(report.Findings)+len(report.Checked) == 0 {
		return statusOf(err), err
	}
	if status, perr := c.print(report); perr != nil {
		return status, perr
	}
	switch {
	case err != nil:
		return statusOf(err), err
	case report.Danger():
		return exitBroken, nil
	}
	return 0, nil
}

func (c *doctorCommand) print(r *doctor.Report) (int, error) {
	if c.json {
		return answerJSON(r)
	}
	return answer(reportText(r))
}

func reportText(r *doctor.Report) string {
	var b strings.Builder
	for _, s := range []doctor.Severity{doctor.Danger, doctor.Note} {
		for _, f := range r.Findings {
			if f.Severity == s {
				writeFinding(&b, f)
			}
		}
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
