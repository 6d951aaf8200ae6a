//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/report"
	"github.com/lockstile/locker/proof/testbed"
)

const guarantees, readme = "../../" + briefPage, "../../README.md"

// What was measured is in two places. "make compare" writes both.
func TestReadmeShowsWhatGuaranteesSays(t *testing.T) {
	before, after, err := around(readme)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.TrimSuffix(strings.TrimPrefix(string(text), before+briefBegins), briefEnds+after)
	if want := brief(measured(t)); shown != want {
		t.Errorf("README.md shows\n%s\nand %s says\n%s", shown, briefPage, want)
	}
}

// To make the page takes minutes, so it may be older than its texts: it must not be.
func TestGuaranteesHasTheWordsOfThisModule(t *testing.T) {
	t.Parallel()
	var made strings.Builder
	report.Markdown(&made, new(matrix.Matrix))
	head, _, _ := strings.Cut(made.String(), "\n## Declared\n")
	page := readFile(t, guarantees)
	if !strings.HasPrefix(page, head+"\n## Declared\n") {
		t.Errorf("%s does not begin with\n%s", guarantees, head)
	}
	if !strings.Contains(page, soakHeading+soakLegend) {
		t.Errorf("%s does not say of soaks\n%s", guarantees, soakLegend)
	}
}

// A scenario or a backend that the page does not know was never measured.
func TestGuaranteesKnowsEveryScenarioAndBackend(t *testing.T) {
	t.Parallel()
	m := measured(t)
	if got, want := len(m.Subjects), len(testbed.Subjects()); got != want {
		t.Errorf("%d backends of %d", got, want)
	}
	if got, want := len(m.Scenarios), len(matrix.Scenarios()); got != want {
		t.Errorf("%d scenarios of %d", got, want)
	}
	for _, c := range append(m.FalseClaims(), m.NotPlayed()...) {
		t.Errorf("%s, %s: %s", c.Subject, c.Scenario, c.Verdict)
	}
}

// measured reads the table of docs/GUARANTEES.md.
func measured(t *testing.T) *matrix.Matrix {
	t.Helper()
	text, err := os.ReadFile(guarantees)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "\n## Measured\n\n")
	if !ok {
		t.Fatalf("%s has no table", guarantees)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	m := new(matrix.Matrix)
	for i, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case i == 0:
			m.Subjects = byName(t, testbed.Subjects(), subjectName, cells[2:]...)
		case i > 1:
			name, _, _ := strings.Cut(strings.TrimPrefix(cells[0], "["), "]")
			m.Scenarios = append(m.Scenarios, byName(t, matrix.Scenarios(), scenarioName, name)...)
			for k, cell := range cells[2:] {
				m.Cells = append(m.Cells, matrix.Cell{Scenario: name, Subject: m.Subjects[k].Name, Verdict: verdict(t, cell)})
			}
		}
	}
	return m
}

func byName[T any](t *testing.T, all []T, name func(T) string, names ...string) (found []T) {
	t.Helper()
	for _, n := range names {
		before := len(found)
		for _, one := range all {
			if name(one) == n {
				found = append(found, one)
			}
		}
		if len(found) == before {
			t.Errorf("there is no %q any more", n)
		}
	}
	return found
}

func verdict(t *testing.T, cell string) matrix.Verdict {
	t.Helper()
	cell, _, _ = strings.Cut(strings.Trim(cell, "*"), "; ") // what became of updates comes after the verdict
	switch {
	case cell == "–", cell == "no such kind":
		return matrix.Skipped
	case strings.HasPrefix(cell, string(matrix.Kept)):
		return matrix.Kept
	}
	for _, v := range []matrix.Verdict{matrix.Fenced, matrix.Broken, matrix.FalseClaim, matrix.NotPlayed} {
		if cell == string(v) {
			return v
		}
	}
	t.Errorf("%q is no verdict", cell)
	return matrix.NotPlayed
}

func TestMatrixInBriefTakesThePlaceOfTheLast(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "README.md")
	writeFile(t, path, "before\n"+briefBegins+"old\n"+briefEnds+"after\n")
	few, scenarios := testbed.Short()
	m := &matrix.Matrix{Subjects: few[:1], Scenarios: scenarios[:1], Cells: []matrix.Cell{{Subject: few[0].Name, Scenario: scenarios[0].Name, Verdict: matrix.Kept}}}
	if err := putInto(path, m); err != nil {
		t.Fatal(err)
	}
	if text := readFile(t, path); text != "before\n"+briefBegins+brief(m)+briefEnds+"after\n" || !strings.Contains(text, "| "+few[0].Name+" |") || strings.Contains(text, few[1].Name) {
		t.Errorf("it is now\n%s", text)
	}
	for _, text := range []string{"", briefBegins, briefEnds} {
		writeFile(t, path, text)
		if err := putInto(path, m); err == nil || readFile(t, path) != text {
			t.Errorf("in %q there is no place, and yet: %v", text, err)
		}
	}
	if _, _, err := around(filepath.Dir(path)); err == nil {
		t.Error("no error of a file that cannot be read")
	}
}

func TestReportThatCannotBeMadeIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := writeTo(dir, asJSON("all")); err == nil {
		t.Error("no error of a path that is a directory")
	}
	if err := writeTo("", nil); err != nil {
		t.Error(err)
	}
	if err := addRows(dir, nil); err == nil {
		t.Error("rows were added to a directory")
	}
	if _, err := soakPart(dir); err == nil {
		t.Error("a directory has a part of soaks")
	}
	if part, err := soakPart(filepath.Join(dir, "missing")); part != "" || err != nil {
		t.Errorf("a page that is not there has %q, %v", part, err)
	}
}

// A report may be smaller than what is gathered before it is written.
func TestReportThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	if err := writeTo("/dev/full", asJSON("all")); err == nil {
		t.Error("no error of a full disk")
	}
}
