package main

import (
	"strings"
	"testing"

	"github.com/lockstile/locker/conformance/matrix"
)

// Goal: soaks of other backends, and those with other seeds, keep their rows.
func TestASoakReplacesItsOwnRowsOnThePage(t *testing.T) {
	one, other := matrix.Soaked{Subject: "one", Seed: 1, Rounds: 3}, matrix.Soaked{Subject: "other", Seed: 1, Rounds: 3}
	page := withRows("# Guarantees\n", []matrix.Soaked{one, other})
	one.Rounds, one.Locks = 9, 77
	further := matrix.Soaked{Subject: "one", Seed: 10, Rounds: 1}
	page = withRows(page, []matrix.Soaked{one, further})
	want := "# Guarantees\n" + soakHeading + soakLegend + one.Row() + other.Row() + further.Row()
	if page != want {
		t.Errorf("the page is\n%s\nand not\n%s", page, want)
	}
	if strings.Count(page, "\n| ") != 4 { // and the head
		t.Errorf("rows are lost:\n%s", page)
	}
}
