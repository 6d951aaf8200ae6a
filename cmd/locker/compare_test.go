//go:build unix

package main

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestWholeNameChoosesThatOneAlone(t *testing.T) {
	t.Parallel()
	all := []string{"single", "single+AOF", "postgres", "postgres session"}
	self := func(s string) string { return s }
	for words, want := range map[string][]string{
		"":                   all,
		"single":             {"single"},
		"sing":               {"single", "single+AOF"},
		"postgres, single":   {"single", "postgres"},
		"session,single+AOF": {"single+AOF", "postgres session"},
		"nothing":            nil,
	} {
		if got := pick(all, words, self); !slices.Equal(got, want) {
			t.Errorf("%q chooses %q", words, got)
		}
	}
}

func TestCompareWritesJSONToStdoutAndTheTextElsewhere(t *testing.T) {
	t.Chdir(t.TempDir()) // where a file of the name "-" would go
	p := launch(t, "compare", "--backends", "local", "--scenarios", "unlock by a former holder", "--json", "-")
	if status := <-p.status; status != 0 {
		t.Errorf("status %d: %s", status, p.errs)
	}
	p.out.ends()
	var m struct {
		Cells []struct{ Subject string } `json:"cells"`
	}
	if err := json.Unmarshal([]byte(p.out.String()), &m); err != nil || len(m.Cells) != 1 {
		t.Errorf("%v in %s", err, p.out)
	}
}
