//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker/conformance/matrix"
	"github.com/lockstile/locker/internal/lab/testbed"
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
	} {
		if got, err := pick("--backends", all, words, self); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q chooses %q, %v", words, got, err)
		}
	}
}

// A name with a comma would be two words.
func TestEveryNameCanBeChosenAlone(t *testing.T) {
	t.Parallel()
	for _, s := range matrix.Scenarios() {
		if got, err := pick("--scenarios", matrix.Scenarios(), s.Name, scenarioName); err != nil || len(got) != 1 {
			t.Errorf("%q chooses %d scenarios, %v", s.Name, len(got), err)
		}
	}
	for _, s := range testbed.Subjects() {
		if got, err := pick("--backends", testbed.Subjects(), s.Name, subjectName); err != nil || len(got) != 1 {
			t.Errorf("%q chooses %d backends, %v", s.Name, len(got), err)
		}
	}
}

// If one of several words is misspelled, the rest must not pass for all.
func TestWordThatChoosesNothingIsAnError(t *testing.T) {
	t.Parallel()
	for words, missing := range map[string]string{"etcd": `"etcd"`, "local,etdc": `"etdc"`, ",": `""`, "local,": `""`, " ": `""`} {
		_, err := pick("--backends", []string{"local", "zookeeper"}, words, func(s string) string { return s })
		if err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "local, zookeeper") {
			t.Errorf("%q: %v", words, err)
		}
	}
	launch(t, "compare", "--backends", "local", "--scenarios", "herd,hred").complains(64, `compare: --scenarios: the word "hred"`, "dead waiter")
}

// Goal: a run that has measured nothing does not pass for one in which all was
// well, and does not replace what an earlier one has found.
func TestCompareThatSkipsEverythingIsAnError(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	writeFile(t, page, "measured", 0o600)
	p := launch(t, "compare", "--backends", "local", "--scenarios", "holder cut off,failover", "--markdown", page)
	if status := <-p.status; status != 69 { // its lines of progress are no messages
		t.Errorf("status %d", status)
	}
	p.errs.ends()
	if !strings.Contains(p.errs.String(), "locker: compare: nothing was measured: all 2 runs were skipped") {
		t.Errorf("it says %s", p.errs)
	}
	p.says("there is no network to break")
	if text, err := os.ReadFile(page); err != nil || string(text) != "measured" {
		t.Errorf("the page is now %q, %v", text, err)
	}
}

func TestCompareWritesJSONToStdoutAndTheTextElsewhere(t *testing.T) {
	t.Chdir(t.TempDir()) // where a file of the name "-" would go
	writeFile(t, "page.md", "old\n"+soakHeading+"rows of soaks\n", 0o600)
	p := launch(t, "compare", "--backends", "local", "--scenarios", "unlock by a former holder", "--json", "-", "--markdown", "page.md")
	if status := <-p.status; status != 0 {
		t.Errorf("status %d: %s", status, p.errs)
	}
	p.out.ends()
	var m struct {
		Cells []struct {
			Subject string
			History struct {
				Spans []struct {
					Token string `json:"token"` // a number may be more than JavaScript can tell from its neighbours
				} `json:"spans"`
			} `json:"history"`
		} `json:"cells"`
	}
	if err := json.Unmarshal([]byte(p.out.String()), &m); err != nil || len(m.Cells) != 1 || len(m.Cells[0].History.Spans) == 0 {
		t.Errorf("%v in %s", err, p.out)
	}
	if page := readFile(t, "page.md"); strings.HasPrefix(page, "old") || !strings.HasSuffix(page, soakHeading+"rows of soaks\n") {
		t.Errorf("of the page only the part of the soaks stays, and it is now\n%s", page)
	}
}

func TestFalseClaimsAndRunsThatWereNotPlayedShowInTheStatus(t *testing.T) {
	t.Parallel()
	for verdict, want := range map[matrix.Verdict]int{matrix.FalseClaim: 1, matrix.NotPlayed: 69, matrix.Broken: 0, matrix.BrokenFenced: 0, matrix.Kept: 0} {
		if got, _ := exitOf(&matrix.Matrix{Cells: []matrix.Cell{{Verdict: matrix.Kept}, {Verdict: verdict}}}); got != want {
			t.Errorf("%s: status %d, want %d", verdict, got, want)
		}
	}
	worst := &matrix.Matrix{Cells: []matrix.Cell{{Verdict: matrix.NotPlayed}, {Verdict: matrix.FalseClaim}}}
	if got, _ := exitOf(worst); got != exitBroken {
		t.Errorf("a false claim among runs that were not played: status %d", got)
	}
}
