package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/meter"
)

func TestMedianIsTheMiddleAndOfAnEvenNumberBetweenTheTwo(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 100}, 3}, {[]float64{5}, 5},
	} {
		if got := median(slices.Clone(c.values)); got != c.want {
			t.Errorf("of %v it is %v, want %v", c.values, got, c.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("of nothing it is %v", got)
	}
}

// rounds is a result with one figure, one value each round.
func rounds(name string, k kind, values ...float64) result {
	r := result{subject: subject{name: name, kind: k}}
	for _, v := range values {
		r.rounds = append(r.rounds, figures{"time": v})
	}
	return r
}

// The medians, 20 and 10, have the ratio 2; the rounds have 1, 3 and 4.
func TestRatioIsTheMedianOfTheRoundsRatios(t *testing.T) {
	ours, other := rounds("a", ours, 10, 30, 20), rounds("b", floor, 10, 10, 5)
	if got := ours.ratio(&other, "time"); got != "3.00" {
		t.Errorf("%s, want 3.00", got)
	}
	nothing := rounds("c", peer, 0, 0, 0)
	if got := ours.ratio(&nothing, "time"); got != "" {
		t.Errorf("to nothing it is %q", got)
	}
	if got := ours.ratio(nil, "time"); got != "" {
		t.Errorf("to nobody it is %q", got)
	}
}

func TestBestPeerIsThatOfTheBestMedianAndNeverWeOrTheFloor(t *testing.T) {
	results := []result{rounds("us", ours, 1), rounds("slow", peer, 9), rounds("fast", peer, 5), rounds("bare", floor, 2)}
	lower := func(a, b result) bool { return a.median("time") < b.median("time") }
	if got := best(results, peer, lower); got.subject.name != "fast" {
		t.Errorf("it is %q", got.subject.name)
	}
	if got := best(results[:1], peer, lower); got != nil {
		t.Errorf("of none it is %q", got.subject.name)
	}
}

func TestFiguresPrintWithoutExponentsAndNegativeNothings(t *testing.T) {
	for f, want := range map[float64]string{
		1e6: "1000000", 1e4: "10000", -0.0001: "0", 0: "0", 0.1778: "0.18", 10.93: "10.93", 925.21: "925.2", 5690.4: "5690", 1.0004: "1.00",
		math.NaN(): "", math.Inf(1): "",
	} {
		if got := plain(f); got != want {
			t.Errorf("%v is printed %q, want %q", f, got, want)
		}
	}
	if got := number(-0.001, 2); got != "0.00" {
		t.Errorf("-0.001 is printed %q", got)
	}
}

func TestNoLocksAreNoFigures(t *testing.T) {
	var page strings.Builder
	f := contest(meter.New(2), time.Second, 500)
	contendedTable(&page, workload{about: "nothing"}, []result{{subject: subject{name: "a", kind: peer}, rounds: []figures{f}}})
	if want := "| a | 0 |  |  |  |  |  |  |\n"; !strings.HasSuffix(page.String(), want) {
		t.Errorf("%s\nwant at the end\n%s", page.String(), want)
	}
}
