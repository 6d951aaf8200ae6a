package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

func (b *benchReport) print(in invocation) (int, error) {
	if in.json {
		return output(json.NewEncoder(os.Stdout).Encode(b))
	}
	var text strings.Builder
	b.writeTables(&text)
	switch {
	case b.CutShort && len(b.Workloads) == 0:
		text.WriteString("cut short: nothing was measured\n")
	case b.CutShort:
		text.WriteString("cut short: MEASURED says how much of each was, and what is missing was not\n")
	}
	fmt.Fprintf(&text, "checked: %d locks, one holder of a name at a time, and each token above the last\n", b.Checked)
	return answer(text.String())
}

// writeTables has a table for the workloads with a name for each, and one for
// those where all want one.
func (b *benchReport) writeTables(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	var head string
	for _, f := range b.Workloads {
		columns, cells := f.ownNames()
		if f.ChangedHands != nil {
			columns, cells = f.oneName()
		}
		if columns != head {
			fmt.Fprintln(w, columns)
			head = columns
		}
		fmt.Fprintf(w, "%s\t%v\t%.0f\t%s\n", f.who(), short(f.Measured), f.Rate, strings.Join(cells, "\t"))
	}
	if head != "" {
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to a buffer
}

func (f figures) who() string {
	return fmt.Sprintf("%s, %s", count(f.Goroutines, "goroutine"), count(f.Clients, "client"))
}

func (f figures) ownNames() (columns string, cells []string) {
	return "A NAME EACH\tMEASURED\tLOCKS/S\tLOCK MEDIAN\t99 %\tUNLOCK MEDIAN\t99 %",
		[]string{short(f.LockMedian), short(f.LockP99), short(f.UnlockMedian), short(f.UnlockP99)}
}

func (f figures) oneName() (columns string, cells []string) {
	fairness, changed := "-", "-"
	if f.Locks > 0 {
		fairness = fmt.Sprintf("%.2f", f.Jain)
		changed = fmt.Sprintf("%d of %d", *f.ChangedHands, f.Locks)
	}
	hold := short(f.Hold)
	if f.Hold == 0 {
		hold = "0s"
	}
	return "\nONE NAME\tMEASURED\tLOCKS/S\tHELD FOR\tHAND-OVER MEDIAN\t99 %\tFAIRNESS\tCHANGED HANDS",
		[]string{hold, short(f.HandOverMedian), short(f.HandOverP99), fairness, changed}
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// short is a time in three digits, or a dash for none.
func short(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d <= 0 {
		return "-"
	}
	unit := time.Duration(math.Pow10(int(math.Log10(float64(d))) - 2))
	return d.Round(max(unit, 1)).String()
}
