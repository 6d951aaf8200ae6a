package matrix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// Unproven is an assumption that a declaration makes though no scenario has shown that
// it must: all scenarios that break it were played, or none can be.
type Unproven struct {
	Subject   string             `json:"subject"`
	Guarantee string             `json:"guarantee"` // "exclusion" or "tokens"
	Assumed   locker.Assumptions `json:"assumed"`
}

// String is that part of the declaration in words.
func (u Unproven) String() string {
	verb := "assumes"
	if strings.HasSuffix(u.Guarantee, "s") {
		verb = "assume"
	}
	return fmt.Sprintf("%s of %s %s: %v", u.Guarantee, u.Subject, verb, u.Assumed)
}

// unproven returns what was broken, in every way that there is, without doing harm, and
// what nothing can break here. catalogue are all scenarios that there are: the one that
// shows the harm may be among those that were not chosen.
func (m *Matrix) unproven(catalogue []Scenario) (modest, untried []Unproven) {
	unplayed := m.unplayed(catalogue)
	for _, s := range m.Subjects {
		exclusion, tokens, tried, open := s.Guarantees.Exclusion, s.Guarantees.Tokens, locker.Assumptions(0), unplayed
		if s.Tokenless() {
			tokens = 0 // no fault can break a promise that is not made
		}
		exclusion &^= locker.Unpromised // for the same reason
		for _, sc := range m.Scenarios {
			switch c := m.Cell(sc.Name, s.Name); c.Verdict {
			case Skipped:
				continue
			case NotPlayed:
				open |= sc.Breaks
			case Broken:
				tokens &^= sc.Breaks
				if c.Overlap > judge.Slack || c.Stale > 0 { // else only tokens went back
					exclusion &^= sc.Breaks
				}
			case Fenced:
				exclusion &^= sc.Breaks
			}
			tried |= sc.Breaks
		}
		for _, left := range []Unproven{{s.Name, "exclusion", exclusion}, {s.Name, "tokens", tokens}} {
			modest = left.appendTo(modest, tried&^open)
			untried = left.appendTo(untried, ^tried&^open)
		}
	}
	return modest, untried
}

// Complete reports whether every scenario that breaks an assumption was chosen. Otherwise it means nothing
// that Modest is empty.
func (m *Matrix) Complete() bool { return m.unplayed(Scenarios()) == 0 }

// unplayed returns what the scenarios break that were not chosen.
func (m *Matrix) unplayed(catalogue []Scenario) (broken locker.Assumptions) {
	for _, sc := range catalogue {
		if !slices.ContainsFunc(m.Scenarios, func(chosen Scenario) bool { return chosen.Name == sc.Name }) {
			broken |= sc.Breaks
		}
	}
	return broken
}

// appendTo appends to all the part of u that is in some, if any.
func (u Unproven) appendTo(all []Unproven, some locker.Assumptions) []Unproven {
	if u.Assumed &= some; u.Assumed == 0 {
		return all
	}
	return append(all, u)
}

// nothingLost turns cells of a scenario into [NotPlayed] if no subject at all has lost an
// update without the guard though some may: the pauses had no effect, so the guard was not
// needed, and nothing was shown.
func (m *Matrix) nothingLost() {
	for _, sc := range m.Scenarios {
		var may []*Cell
		lost := false
		for i := range m.Cells {
			c := &m.Cells[i]
			if c.Scenario != sc.Name || c.Verdict == NotPlayed || c.History == nil || c.History.Updates == nil {
				continue
			}
			lost = lost || len(c.History.Updates.Lost().Unguarded) > 0
			if c.Verdict != FalseClaim && m.mayLose(c.Subject, sc.Breaks) {
				may = append(may, c)
			}
		}
		for _, c := range may {
			if !lost {
				c.Verdict, c.Why = NotPlayed, "no configuration lost an update without the guard, although some may: the scenario shows nothing"
			}
		}
	}
}

// mayLose reports whether a subject declares that two may hold its lock when broken is broken.
func (m *Matrix) mayLose(subject string, broken locker.Assumptions) bool {
	return slices.ContainsFunc(m.Subjects, func(s Subject) bool {
		return s.Name == subject && s.Guarantees.Exclusion&(broken|locker.Unpromised) != 0
	})
}
