package conformance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// summary is what Run has checked, and what it has not.
type summary struct {
	mu      sync.Mutex
	checked int
	missing map[string][]string // what there was none of: the clauses that need it
}

// note takes down how a clause went: a nil for one that was checked.
func (s *summary) note(c Clause, skipped *Skipped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if skipped == nil {
		s.checked++
		return
	}
	if s.missing == nil {
		s.missing = make(map[string][]string)
	}
	s.missing[skipped.Missing] = append(s.missing[skipped.Missing], c.Name)
}

// String is one line for everything that was missing, after one that counts.
func (s *summary) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("conformance: %d clauses were checked", s.checked)
	for _, missing := range slices.Sorted(maps.Keys(s.missing)) {
		clauses := s.missing[missing]
		slices.Sort(clauses)
		text += fmt.Sprintf("\n%d not, for there is no %s: %s", len(clauses), missing, strings.Join(clauses, ", "))
	}
	return text
}

// show logs the summary. A log of a test that passes is seen with -v alone, so where
// something was not checked it goes to the terminal, too.
func (s *summary) show(t *testing.T) {
	t.Helper()
	t.Log(s)
	if len(s.missing) > 0 && !testing.Verbose() {
		fmt.Fprintf(os.Stderr, "%s: %v\n", t.Name(), s)
	}
}
