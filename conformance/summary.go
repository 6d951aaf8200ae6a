package conformance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// summary says what Run has checked and what it has not.
type summary struct {
	mu      sync.Mutex
	checked int
	missing map[string][]string // by what was missing: the clauses that need it
	took    []string            // how long each clause took that took a second or more
}

// note notes a clause. skipped is nil if it was checked.
func (s *summary) note(c Clause, skipped *skipped, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took >= time.Second {
		s.took = append(s.took, fmt.Sprintf("%6.1fs %s", took.Seconds(), c.Name))
	}
	if skipped == nil {
		s.checked++
		return
	}
	if s.missing == nil {
		s.missing = make(map[string][]string)
	}
	s.missing[skipped.Missing] = append(s.missing[skipped.Missing], c.Name)
}

// String counts the clauses that were checked, and has a line for each thing that was
// missing.
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

// show logs the summary. Without -v the log of a test that passes is not shown, so if
// something was not checked the summary goes to the terminal, too.
func (s *summary) show(t *testing.T) {
	t.Helper()
	t.Log(s)
	if slices.Sort(s.took); len(s.took) > 0 {
		t.Logf("clauses that took a second or more:\n%s", strings.Join(s.took, "\n"))
	}
	if len(s.missing) > 0 && !testing.Verbose() {
		fmt.Fprintf(os.Stderr, "%s: %v\n", t.Name(), s)
	}
}
