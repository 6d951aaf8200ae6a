// Package doctor examines a store for what can hurt the locks in it: settings under which
// a guarantee does not hold, or under which locks cannot work. It changes nothing there,
// except that a URL with schema=ensure makes the tables. "locker doctor" prints what it
// finds.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/dial"
)

// Severity says how bad a finding is.
type Severity string

const (
	// Danger: a guarantee can break without anybody being told, or locks
	// cannot work.
	Danger Severity = "danger"
	// Note: those who rely on the locks should know.
	Note Severity = "note"
)

// Finding is one hazard. Its words may change with any release. Its Code does not, so a
// program can use the Code to ignore findings that it knows.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Where    string   `json:"where"`          // the server, or the directory
	What     string   `json:"what"`           // what was seen there
	Means    string   `json:"means"`          // what it does to locks
	Mend     string   `json:"mend,omitempty"` // the setting that mends it
}

// Report is the result of an examination.
type Report struct {
	Findings []Finding `json:"findings"`
	Checked  []Checked `json:"checked"` // with and without findings
}

// Checked says what was looked at in one place.
type Checked struct {
	Where string   `json:"where"`
	What  []string `json:"what"`
}

// Danger reports whether one of the findings is a danger.
func (r *Report) Danger() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Danger })
}

// unusableTime bounds the look at a store that package open would refuse.
const unusableTime = 10 * time.Second

// Examine examines the store at url, in the form that [open.URL] takes. If the store does
// not let its user make a check, that is a finding, too. An error is one that open.URL
// would return for url; or the store has stopped answering, and the error wraps
// [locker.ErrUnavailable]. The Report has what was found until then; it is never nil.
//
// [open.URL]: https://pkg.go.dev/github.com/lockstile/locker/open#URL
func Examine(ctx context.Context, url string) (*Report, error) {
	r := &Report{Findings: []Finding{}, Checked: []Checked{}} // not null in JSON
	b, err := dial.URL(ctx, url)
	if b != nil {
		defer b.Close() // nothing was asked for that could be lost
	}
	if err != nil {
		if b != nil {
			ctx, cancel := context.WithTimeout(ctx, unusableTime)
			defer cancel()
			_ = r.examine(ctx, b) // err says it already
		}
		return r, fmt.Errorf("doctor: %w", err)
	}
	if err := r.examine(ctx, b); err != nil {
		return r, fmt.Errorf("doctor: %w", err)
	}
	return r, nil
}

// examine returns an error where the store does not answer.
func (r *Report) examine(ctx context.Context, b dial.Backend) error {
	if err := r.look(ctx, b); err != nil {
		return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
	}
	return nil
}

func (r *Report) look(ctx context.Context, b dial.Backend) error {
	switch b := b.(type) {
	case *dial.Local:
		return r.directory(b.Dir, b.ByDefault)
	case *dial.File:
		return r.directory(b.Dir, false)
	case *dial.Redis:
		return r.redis(ctx, b)
	case *dial.Redlock:
		return r.redlock(ctx, b)
	case *dial.Etcd:
		return r.etcd(ctx, b)
	case *dial.ZooKeeper:
		return r.zooKeeper(ctx, b)
	case *dial.Postgres:
		return r.postgres(ctx, b)
	}
	return errors.New("there are no checks for this backend")
}

// at is a Report for the findings in one place.
type at struct {
	*Report
	where string
}

func (r *Report) at(where string) at { return at{r, where} }

// found adds a finding of the table, with the values that were seen.
func (a at) found(code string, seen ...any) {
	row := table[code]
	a.Findings = append(a.Findings, Finding{code, row.severity, a.where, fmt.Sprintf(row.what, seen...), row.means, row.mend})
}

// checked adds to the summary of what was looked at.
func (a at) checked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for i := range a.Checked {
		if c := &a.Checked[i]; c.Where == a.where {
			c.What = append(c.What, text)
			return
		}
	}
	a.Checked = append(a.Checked, Checked{a.where, []string{text}})
}

// quorum looks at how many servers vote, and how many of them the URL names.
func (a at) quorum(voters, named int) {
	switch {
	case voters <= 1:
		a.found("quorum-of-one")
	case voters%2 == 0:
		a.found("quorum-even", voters)
	}
	if named < voters {
		a.found("quorum-unnamed", named, voters)
	}
	a.checked("servers that vote (%d)", voters)
}

// pairs takes apart lines of a name and a value.
func pairs(text, separator string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), separator); ok {
			all[name] = strings.TrimSpace(value)
		}
	}
	return all
}

// before compares a version such as 7.0.15. One that is not understood is not
// before anything.
func before(version string, least ...int) bool {
	for i, part := range strings.Split(version, ".") {
		if i == len(least) {
			break
		}
		have, err := strconv.Atoi(part)
		if err != nil || have != least[i] {
			return err == nil && have < least[i]
		}
	}
	return false
}
