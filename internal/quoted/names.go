package quoted

import (
	"os"
	"path/filepath"
	"regexp"
)

// Names checks each name of a file, in Go or Lua, that a page or a model has in backquotes: the file is below
// root, and declares the names that follow it after a colon, in backquotes too, in Go, Lua or SQL. There are at
// least so many places.
func Names(t TB, root, page string, least int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Errorf("%v", err)
	}
	places := regexp.MustCompile("`([\\w/]+\\.(?:go|lua))`(?::\\s((?:`\\w+`(?:,\\s)?)+))?").FindAllSubmatch(text, -1)
	if len(places) < least {
		t.Errorf("%s: only %d places were found", page, len(places))
	}
	for _, place := range places {
		file, err := os.ReadFile(filepath.Join(root, string(place[1])))
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		for _, name := range regexp.MustCompile(`\w+`).FindAllString(string(place[2]), -1) {
			declared := `(?m)^(\t|func (\([^)]*\) )?|type |var |const |local function |CREATE OR REPLACE FUNCTION )` + name + `(\b|_)`
			if !regexp.MustCompile(declared).Match(file) {
				t.Errorf("%s: %s does not declare %s", page, place[1], name)
			}
		}
	}
}
