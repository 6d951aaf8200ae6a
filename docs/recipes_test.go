// Package docs_test runs what the pages of this folder show.
package docs_test

import (
	"os"
	"strings"
	"testing"

	// What only the pages' programs import. The file go.mod must name it too.
	_ "github.com/robfig/cron/v3"

	_ "github.com/lockstile/locker/open"
)

// page returns the text of a page of this folder.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFencesAreClosed guards all that reads blocks of code: one that does not end would
// swallow the rest of its page.
func TestFencesAreClosed(t *testing.T) {
	for _, name := range []string{"ARCHITECTURE.md", "BACKENDS.md", "CHOOSING.md"} {
		if n := strings.Count("\n"+page(t, name), "\n```"); n%2 != 0 {
			t.Errorf("%s has %d fences", name, n)
		}
	}
}
