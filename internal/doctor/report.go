// Package doctor looks at stores for what can hurt the locks kept in them: a
// setting under which a guarantee does not hold, or under which locks cannot
// work. It changes nothing in them.
package doctor

import (
	"context"
	"fmt"
)

// Severity says how bad a finding is.
type Severity string

const (
	// Danger: a guarantee can break without anybody being told, or locks
	// cannot work.
	Danger Severity = "danger"
	// Note: whoever relies on the locks should know.
	Note Severity = "note"
)

// Finding is one hazard.
type Finding struct {
	Severity Severity `json:"severity"`
	Where    string   `json:"where"`          // the server, or the directory
	What     string   `json:"what"`           // what was seen there
	Means    string   `json:"means"`          // what it does to locks
	Mend     string   `json:"mend,omitempty"` // the setting that mends it
}

// Report is what a look at a store has brought to light.
type Report struct {
	Findings []Finding `json:"findings"`
	Checked  []Checked `json:"checked"` // whatever came of it
}

// Checked says what was looked at in one place.
type Checked struct {
	Where string   `json:"where"`
	What  []string `json:"what"`
}

// Patient is a store that lets itself be looked at. What could not be seen is a
// finding, too; an error means that nothing can be said because the store does
// not answer.
type Patient interface {
	Examine(ctx context.Context, r *Report) error
}

// Danger reports whether one of the findings is a danger.
func (r *Report) Danger() bool {
	for _, f := range r.Findings {
		if f.Severity == Danger {
			return true
		}
	}
	return false
}

// at is a Report for the findings in one place.
type at struct {
	*Report
	where string
}

func (r *Report) at(where string) at { return at{r, where} }

func (a at) danger(what, means, mend string) { a.add(Danger, what, means, mend) }

func (a at) note(what, means, mend string) { a.add(Note, what, means, mend) }

func (a at) add(s Severity, what, means, mend string) {
	a.Findings = append(a.Findings, Finding{s, a.where, what, means, mend})
}

// blind notes what could not be looked at. Something may be wrong there.
func (a at) blind(what string, err error, mend string) {
	a.note(fmt.Sprintf("%s could not be looked at: %v", what, err), "there may be hazards that are not named here", mend)
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
