package locker

import (
	"os"
	"regexp"
	"testing"
)

// TestPagesNameWhatIsThere checks each `path.go`: `name`, `name` of a page, or of a model: the
// file declares the names, in Go, Lua or SQL.
func TestPagesNameWhatIsThere(t *testing.T) {
	for page, least := range map[string]int{
		"docs/ARCHITECTURE.md": 50, "spec/README.md": 20, "spec/lease.pml": 9, "spec/guard.pml": 3, "spec/redlock.pml": 8,
	} {
		t.Run(page, func(t *testing.T) { namesWhatIsThere(t, page, least) })
	}
}

func namesWhatIsThere(t *testing.T, page string, least int) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	places := regexp.MustCompile("`([\\w/]+\\.go)`(?::\\s((?:`\\w+`(?:,\\s)?)+))?").FindAllSubmatch(text, -1)
	if len(places) < least {
		t.Errorf("only %d places were found", len(places))
	}
	for _, place := range places {
		file, err := os.ReadFile(string(place[1]))
		if err != nil {
			t.Error(err)
		}
		for _, name := range regexp.MustCompile(`\w+`).FindAllString(string(place[2]), -1) {
			declared := `(?m)^(\t|func (\([^)]*\) )?|type |var |const |local function |CREATE OR REPLACE FUNCTION )` + name + `(\b|_)`
			if !regexp.MustCompile(declared).Match(file) {
				t.Errorf("%s does not declare %s", place[1], name)
			}
		}
	}
}
