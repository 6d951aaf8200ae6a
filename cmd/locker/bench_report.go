package main

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockstile/locker/internal/meter"
)

// benchReport is what "bench" prints.
type benchReport struct {
	Backend   string    `json:"backend"` // the scheme of its URL, which has no password in it
	TTL       float64   `json:"ttl_seconds"`
	CutShort  bool      `json:"cut_short"`
	Checked   int       `json:"locks_checked"` // also those that were not measured
	Workloads []figures `json:"workloads"`
}

// figures are those of a workload. What there were too few locks to measure is 0,
// and left out of JSON.
type figures struct {
	Name       string  `json:"name"`
	Goroutines int     `json:"goroutines"`
	Clients    int     `json:"clients"`
	Hold       float64 `json:"hold_seconds"`
	Measured   float64 `json:"measured_seconds"`
	Locks      int     `json:"locks"`
	Rate       float64 `json:"locks_per_second"`

	LockMedian   float64 `json:"lock_median_seconds,omitempty"`
	LockP99      float64 `json:"lock_p99_seconds,omitempty"`
	UnlockMedian float64 `json:"unlock_median_seconds,omitempty"`
	UnlockP99    float64 `json:"unlock_p99_seconds,omitempty"`

	HandOverMedian float64 `json:"hand_over_median_seconds,omitempty"`
	HandOverP99    float64 `json:"hand_over_p99_seconds,omitempty"`
	Jain           float64 `json:"jain,omitempty"`
	ChangedHands   *int    `json:"changed_hands,omitempty"`
}

// figures are those of a race that is over.
func (r *race) figures(took time.Duration) figures {
	f := figures{
		Name:       "own names",
		Goroutines: r.load.goroutines,
		Clients:    r.load.clients,
		Hold:       r.load.hold.Seconds(),
		Measured:   took.Seconds(),
		Locks:      r.meter.Locks(),
	}
	f.Rate = float64(f.Locks) / max(f.Measured, 1e-9)
	if !r.load.oneName {
		f.LockMedian, f.LockP99 = seconds(&r.lock)
		f.UnlockMedian, f.UnlockP99 = seconds(&r.unlock)
		return f
	}
	f.Name = "one name"
	f.HandOverMedian, f.HandOverP99 = seconds(&r.meter.HandOver)
	f.ChangedHands = &r.meter.Changes
	if f.Locks > 0 {
		f.Jain = r.meter.Jain()
	}
	return f
}

// seconds are the median and the 99th percentile.
func seconds(h *meter.Histogram) (median, p99 float64) {
	return h.Percentile(50).Seconds(), h.Percentile(99).Seconds()
}

// text has a table for the workloads with a name for each goroutine, and one for that where all want one name.
func (b *benchReport) text() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for i, f := range b.Workloads {
		switch {
		case f.ChangedHands != nil:
			fmt.Fprintln(w, "\nONE NAME\tMEASURED\tLOCKS/S\tHELD FOR\tHAND-OVER MEDIAN\t99 %\tFAIRNESS\tCHANGED HANDS")
		case i == 0:
			fmt.Fprintln(w, "A NAME EACH\tMEASURED\tLOCKS/S\tLOCK MEDIAN\t99 %\tUNLOCK MEDIAN\t99 %")
		}
		who := count(f.Goroutines, "goroutine") + ", " + count(f.Clients, "client")
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%s\n", who, short(f.Measured), f.Rate, strings.Join(f.cells(), "\t"))
	}
	_ = w.Flush() // to a buffer
	switch {
	case b.CutShort && len(b.Workloads) == 0:
		text.WriteString("cut short: nothing was measured\n")
	case b.CutShort:
		text.WriteString("\ncut short: MEASURED says how much of each was, and what is missing was not\n")
	default:
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "checked: %d locks, one holder of a name at a time, and each token above the last\n", b.Checked)
	return text.String()
}

// cells are what the two tables do not have in common.
func (f figures) cells() []string {
	if f.ChangedHands == nil {
		return []string{short(f.LockMedian), short(f.LockP99), short(f.UnlockMedian), short(f.UnlockP99)}
	}
	fairness := "-"
	if f.Locks > 0 {
		fairness = fmt.Sprintf("%.2f", f.Jain)
	}
	return []string{duration(f.Hold).String(), short(f.HandOverMedian), short(f.HandOverP99), fairness, fmt.Sprintf("%d of %d", *f.ChangedHands, f.Locks)}
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func duration(seconds float64) time.Duration { return time.Duration(math.Round(seconds * 1e9)) }

// short is a time in three digits, or a dash for none.
func short(seconds float64) string {
	d := duration(seconds)
	if d <= 0 {
		return "-"
	}
	unit := time.Duration(math.Pow10(int(math.Log10(float64(d))) - 2))
	return d.Round(max(unit, 1)).String()
}
