package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// median of a figure over the rounds.
func (r result) median(figure string) float64 {
	values := make([]float64, 0, len(r.rounds))
	for _, f := range r.rounds {
		values = append(values, f[figure])
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// ratio is the median of a figure against another subject's in the same round:
// the machine's moods move both.
func (r result) ratio(other *result, figure string) string {
	if other == nil {
		return ""
	}
	values := make([]float64, 0, len(r.rounds))
	for i := range r.rounds {
		values = append(values, r.rounds[i][figure]/other.rounds[i][figure])
	}
	slices.Sort(values)
	median := values[len(values)/2]
	if math.IsNaN(median) || math.IsInf(median, 0) {
		return "" // the other one got nothing at all
	}
	return fmt.Sprintf("%.2f", median)
}

// best returns the result of a kind with the best median, or nil.
func best(results []result, k kind, better func(a, b result) bool) *result {
	var top *result
	for i, r := range results {
		if r.subject.kind == k && (top == nil || better(r, *top)) {
			top = &results[i]
		}
	}
	return top
}

func uncontendedTable(w io.Writer, load workload, results []result) {
	faster := func(a, b result) bool { return a.median("time") < b.median("time") }
	bare, rival := best(results, floor, faster), best(results, peer, faster)
	head(w, load, "", "µs", "× floor", "× best peer", "requests", "allocations")
	for _, r := range results {
		row(w, r.subject.name, fmt.Sprintf("%.0f", r.median("time")/1000), r.ratio(bare, "time"), r.ratio(rival, "time"),
			fmt.Sprintf("%.2f", r.median("requests")), fmt.Sprintf("%.0f", r.median("allocs")))
	}
}

func contendedTable(w io.Writer, load workload, results []result) {
	more := func(a, b result) bool { return a.median("rate") > b.median("rate") }
	rival := best(results, peer, more)
	head(w, load, "", "locks/s", "× best peer", "requests", "hand-over p50 µs", "p99 µs", "Jain", "changes hands")
	for _, r := range results {
		row(w, r.subject.name, fmt.Sprintf("%.0f", r.median("rate")), r.ratio(rival, "rate"), fmt.Sprintf("%.2f", r.median("requests")),
			fmt.Sprintf("%.0f", r.median("p50")/1000), fmt.Sprintf("%.0f", r.median("p99")/1000),
			fmt.Sprintf("%.2f", r.median("jain")), fmt.Sprintf("%.0f %%", 100*r.median("changes")))
	}
}

// plainTable has a row for every figure.
func plainTable(w io.Writer, load workload, results []result) {
	columns := []string{""}
	var names []string
	for _, r := range results {
		columns = append(columns, r.subject.name)
		for _, f := range r.rounds {
			names = slices.AppendSeq(names, maps.Keys(f))
		}
	}
	slices.Sort(names)
	head(w, load, columns...)
	for _, name := range slices.Compact(names) {
		cells := []string{name}
		for _, r := range results {
			cells = append(cells, fmt.Sprintf("%.4g", r.median(name)))
		}
		row(w, cells...)
	}
}

func head(w io.Writer, load workload, columns ...string) {
	fmt.Fprintf(w, "\n### %s\n\n", load.about)
	row(w, columns...)
	row(w, append([]string{"---"}, slices.Repeat([]string{"---:"}, len(columns)-1)...)...)
}

func row(w io.Writer, cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
