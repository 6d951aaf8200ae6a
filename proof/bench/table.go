package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// median of a figure over the rounds.
func (r result) median(figure string) float64 {
	values := make([]float64, 0, len(r.rounds))
	for _, f := range r.rounds {
		values = append(values, f[figure])
	}
	return median(values)
}

// median is that of the middle two where there are two. It is not a number where
// there is nothing, and what is not a number counts as the least.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// number prints a figure with so many decimals, or nothing if it is not a number.
func number(f float64, decimals int) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return ""
	}
	s := strconv.FormatFloat(f, 'f', decimals, 64)
	if strings.Trim(s, "-0.") == "" {
		return strings.TrimPrefix(s, "-") // nothing, after rounding
	}
	return s
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
	return number(median(values), 2) // none, if the other one got nothing at all
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
	head(w, load, "", "µs", "× floor", "× best peer", "requests", "allocations", "CPU µs here", "in servers")
	for _, r := range results {
		row(w, r.subject.name, number(r.median("time")/1000, 0), r.ratio(bare, "time"), r.ratio(rival, "time"),
			number(r.median("requests"), 2), number(r.median("allocs"), 0),
			number(r.median("client")/1000, 0), number(r.median("servers")/1000, 0))
	}
}

func contendedTable(w io.Writer, load workload, results []result) {
	more := func(a, b result) bool { return a.median("rate") > b.median("rate") }
	rival := best(results, peer, more)
	head(w, load, "", "locks/s", "× best peer", "requests", "hand-over p50 µs", "p99 µs", "Jain", "changes hands")
	for _, r := range results {
		changes := number(100*r.median("changes"), 0)
		if changes != "" {
			changes += " %"
		}
		row(w, r.subject.name, number(r.median("rate"), 0), r.ratio(rival, "rate"), number(r.median("requests"), 2),
			number(r.median("p50")/1000, 0), number(r.median("p99")/1000, 0), number(r.median("jain"), 2), changes)
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
			cells = append(cells, plain(r.median(name)))
		}
		row(w, cells...)
	}
}

// plain prints a figure of unknown size: a whole number as that, others with four
// digits or two decimals.
func plain(f float64) string {
	decimals := 2
	switch size := math.Abs(f); {
	case f == math.Trunc(f), size >= 1000:
		decimals = 0
	case size >= 100:
		decimals = 1
	case math.Round(100*size) == 0:
		decimals = 0
	}
	return number(f, decimals)
}

func head(w io.Writer, load workload, columns ...string) {
	fmt.Fprintf(w, "\n### %s\n\n", load.about)
	row(w, columns...)
	row(w, append([]string{"---"}, slices.Repeat([]string{"---:"}, len(columns)-1)...)...)
}

func row(w io.Writer, cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
