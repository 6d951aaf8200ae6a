package matrix

import (
	"fmt"

	"github.com/lockstile/locker"
)

// Modesty is an assumption that a subject leans on and that no scenario which
// broke it could hurt.
type Modesty struct {
	Subject   string             `json:"subject"`
	Guarantee string             `json:"guarantee"` // "exclusion" or "tokens"
	Leans     locker.Assumptions `json:"leans"`
}

// String is the declaration in words.
func (m Modesty) String() string {
	return fmt.Sprintf("%s leans its %s on: %v", m.Subject, m.Guarantee, m.Leans)
}

func (m *Matrix) modesty() (modest, untried []Modesty) {
	for _, s := range m.Subjects {
		exclusion, tokens, tried := s.Guarantees.Exclusion, s.Guarantees.Tokens, locker.Assumptions(0)
		if s.Tokenless() {
			tokens = 0 // that they are not promised is nothing that a fault could break
		}
		exclusion &^= locker.Unpromised // for the same reason
		for _, sc := range m.Scenarios {
			switch c := m.Cell(sc.Name, s.Name); c.Verdict {
			case Skipped, NotPlayed:
				continue
			case Broken:
				tokens &^= sc.Breaks
				if c.Overlap > slack || c.Stale > 0 { // else only tokens went back
					exclusion &^= sc.Breaks
				}
			case BrokenFenced:
				exclusion &^= sc.Breaks
			}
			tried |= sc.Breaks
		}
		for _, left := range []Modesty{{s.Name, "exclusion", exclusion}, {s.Name, "tokens", tokens}} {
			modest = left.among(tried, modest)
			untried = left.among(^tried, untried)
		}
	}
	return modest, untried
}

// among appends to all what of it is in some.
func (m Modesty) among(some locker.Assumptions, all []Modesty) []Modesty {
	if m.Leans &= some; m.Leans == 0 {
		return all
	}
	return append(all, m)
}
