//go:build unix

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/report"
)

// Goal: soaks of other backends, and those with other seeds, keep their rows.
func TestASoakReplacesItsOwnRowsOnThePage(t *testing.T) {
	one, other := matrix.Soaked{Subject: "one", Seed: 1, Rounds: 3}, matrix.Soaked{Subject: "other", Seed: 1, Rounds: 3}
	page := withRows("# Guarantees\n", []matrix.Soaked{one, other})
	one.Rounds, one.Locks = 9, 77
	further := matrix.Soaked{Subject: "one", Seed: 10, Rounds: 1}
	page = withRows(page, []matrix.Soaked{one, further})
	want := "# Guarantees\n" + soakHeading + soakLegend + report.SoakRow(one) + report.SoakRow(other) + report.SoakRow(further)
	if page != want {
		t.Errorf("the page is\n%s\nand not\n%s", page, want)
	}
	if strings.Count(page, "\n| ") != 4 { // and the head
		t.Errorf("rows are lost:\n%s", page)
	}
}

// One round of two processes that want one lock.
func TestSoakPlaysARoundAndWritesItsReports(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	writeFile(t, page, "# Guarantees\n")
	status, out, errs := compare(t, "--backends", "local", "--soak", "1s", "--crowd", "2", "--seed", "7", "--json", "-", "--markdown", page)
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	var all []struct {
		Subject   string
		Processes int
		Seed      uint64
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 || all[0].Subject != "local" || all[0].Processes != 2 || all[0].Seed != 7 {
		t.Errorf("%v in %s", err, out)
	}
	for _, want := range []string{"seed 7\n", "local, ", "locks: ", "| local "} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in\n%s", want, errs)
		}
	}
	if text := readFile(t, page); !strings.HasPrefix(text, "# Guarantees\n"+soakHeading) || !strings.Contains(text, "\n| local | 2 | 7–7 | ") {
		t.Errorf("the page is\n%s", text)
	}
}

func TestRoundOfASoakIsToldInALine(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"local, round 7: broken, locks: 2\n":              `{"subject":"local","scenario":"round 7","verdict":"broken","history":{"spans":[{"token":"1"},{"token":"2"}]}}`,
		"local, round 7: not played, locks: 0: no disk\n": `{"subject":"local","scenario":"round 7","verdict":"not played","why":"no disk"}`,
	} {
		var cell matrix.Cell
		if err := json.Unmarshal([]byte(text), &cell); err != nil {
			t.Fatal(err)
		}
		var line strings.Builder
		if tellRound(&line)(cell); line.String() != want {
			t.Errorf("%q, want %q", line.String(), want)
		}
	}
}
