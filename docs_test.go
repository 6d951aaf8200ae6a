package locker

import (
	"os"
	"regexp"
	"testing"
)

// TestArchitectureNamesWhatIsThere checks each `path.go`: `name`, `name` of the page: the
// file declares the names, in Go, Lua or SQL.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	page, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	places := regexp.MustCompile("`([\\w/]+\\.go)`(?::\\s((?:`\\w+`(?:,\\s)?)+))?").FindAllSubmatch(page, -1)
	if len(places) < 50 {
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
