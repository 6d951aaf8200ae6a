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

const doctorHelp = `
Each finding says what was seen, what it means for locks, and which setting mends
it. A danger can break a guarantee without anybody being told, or keep locks from
working. A note is worth knowing. The last lines say what was checked, with "fine"
where there was nothing to find.

Nothing in the store is changed, unless the URL says schema=ensure. The exit status
is 0 if there is no danger, 1 if there is one. If a store cannot be used, the doctor
prints what it could find, and the status is 69.
`

type doctorCommand struct {
	backend
	json bool
}

func (c *doctorCommand) flags(fs flagSet) {
	c.backend.flags(fs)
	fs.json(&c.json)
}

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
