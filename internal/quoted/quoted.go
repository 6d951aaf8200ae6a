// Package quoted checks that the Go code of a page is code that a test builds and runs.
package quoted

import (
	"os"
	"regexp"
	"strings"
)

// TB is what Check needs of a test. A *testing.T is one.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

var (
	block  = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	indent = regexp.MustCompile(`(?m)^\t+`)
)

// Check fails the test unless each block of Go on the page, of which there must be one, stands
// in the source as well, in however many tabs.
func Check(t TB, page, source string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Errorf("%v", err)
	}
	code, err := os.ReadFile(source)
	if err != nil {
		t.Errorf("%v", err)
	}
	blocks := block.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 || len(blocks) != strings.Count(string(text), "```go") {
		t.Errorf("%s has %d blocks of Go that can be read", page, len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(unindented(string(code)), unindented(b[1])) {
			t.Errorf("%s does not have this block of %s:\n%s", source, page, b[1])
		}
	}
}

func unindented(code string) string { return indent.ReplaceAllString(code, "") }
