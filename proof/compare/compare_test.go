//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
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
}

// Goal: a run that has measured nothing does not pass for one in which all was
// well, and does not replace what an earlier one has found.
func TestCompareThatSkipsEverythingIsAnError(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	writeFile(t, page, "measured")
	status, out, errs := compare(t, "--backends", "local", "--scenarios", "holder cut off,failover", "--markdown", page)
	if status != exitUnavailable || !strings.Contains(errs, "compare: nothing was measured: all 2 runs were skipped") {
		t.Errorf("status %d: %s", status, errs)
	}
	if !strings.Contains(out, "there is no network to break") {
		t.Errorf("it does not say why: %s", out)
	}
	if text := readFile(t, page); text != "measured" {
		t.Errorf("the page is now %q", text)
	}
}

func TestCompareWritesJSONToStdoutAndTheTextElsewhere(t *testing.T) {
	t.Chdir(t.TempDir()) // where a file of the name "-" would go
	writeFile(t, "page.md", "old\n"+soakHeading+"rows of soaks\n")
	status, out, errs := compare(t, "--backends", "local", "--scenarios", "unlock by a former holder", "--json", "-", "--markdown", "page.md")
	if status != 0 {
		t.Errorf("status %d: %s", status, errs)
	}
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
	if err := json.Unmarshal([]byte(out), &m); err != nil || len(m.Cells) != 1 || len(m.Cells[0].History.Spans) == 0 {
		t.Errorf("%v in %s", err, out)
	}
	if page := readFile(t, "page.md"); strings.HasPrefix(page, "old") || !strings.HasSuffix(page, soakHeading+"rows of soaks\n") {
		t.Errorf("of the page only the part of the soaks stays, and it is now\n%s", page)
	}
}

func TestFalseClaimsAndRunsThatWereNotPlayedShowInTheStatus(t *testing.T) {
	t.Parallel()
	for verdict, want := range map[matrix.Verdict]int{matrix.FalseClaim: 1, matrix.NotPlayed: 69, matrix.Broken: 0, matrix.Fenced: 0, matrix.Kept: 0} {
		if got, _ := exitOf(&matrix.Matrix{Cells: []matrix.Cell{{Verdict: matrix.Kept}, {Verdict: verdict}}}); got != want {
			t.Errorf("%s: status %d, want %d", verdict, got, want)
		}
	}
	worst := &matrix.Matrix{Cells: []matrix.Cell{{Verdict: matrix.NotPlayed}, {Verdict: matrix.FalseClaim}}}
	if got, _ := exitOf(worst); got != exitBroken {
		t.Errorf("a false claim among runs that were not played: status %d", got)
	}
}

func TestARunThatIsInterruptedSaysHowFarItCameAndWhatItFound(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancelCause(t.Context())
	end(errors.New("interrupted (hangup)"))
	claim := matrix.Cell{Subject: "it", Scenario: "herd", Verdict: matrix.FalseClaim, Why: "two holders for 1s"}
	cutOff := matrix.Cell{Verdict: matrix.NotPlayed}
	for want, c := range map[string]struct {
		cells  []matrix.Cell
		status int
	}{
		"interrupted (hangup) after 1 of 2 runs: no report is written":                  {[]matrix.Cell{{Verdict: matrix.Kept}, cutOff}, exitUnavailable},
		"interrupted (hangup) after 1 of 2 runs, false claims: 1: no report is written": {[]matrix.Cell{claim, cutOff}, exitBroken},
	} {
		status, err := new(command).interrupted(ctx, &matrix.Matrix{Cells: c.cells}, "1 of 2 runs")
		if status != c.status || err == nil || err.Error() != want {
			t.Errorf("status %d, %v", status, err)
		}
	}
}
