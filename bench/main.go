// Command bench measures Lockstile beside other lock libraries, on the same
// servers, in one run, and prints Markdown. What counts are the ratios: to the
// floor, which is the two cheapest bare commands through the same client, and to
// the best other library. Rounds of all subjects are interleaved, and a row shows
// the medians.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"
)

// settings are what the command line says.
type settings struct {
	stores    string
	workloads string
	subjects  string
	rounds    int
	each      time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.stores, "stores", "", "only these, by comma: "+strings.Join(storeNames(), ", "))
	flag.StringVar(&s.workloads, "workloads", "", "only those whose name has one of these words in it, by comma")
	flag.StringVar(&s.subjects, "subjects", "", "only those whose name has one of these words in it, by comma")
	flag.IntVar(&s.rounds, "rounds", 3, "interleaved rounds")
	flag.DurationVar(&s.each, "each", time.Second, "time for one workload of one subject in one round")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, w io.Writer) error {
	fmt.Fprintf(w, "%s, %d cores, %s. Medians of %d interleaved rounds.\n", runtime.Version(), runtime.NumCPU(), runtime.GOOS, s.rounds)
	for _, st := range stores() {
		if !chosen(s.stores, st.name) {
			continue
		}
		if err := measureStore(ctx, s, st, w); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	return nil
}

// chosen reports whether a name has one of the words in it, or there are none.
func chosen(words, name string) bool {
	if words == "" {
		return true
	}
	for word := range strings.SplitSeq(words, ",") {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

func measureStore(ctx context.Context, s settings, st store, w io.Writer) (err error) {
	sc := &scope{}
	defer sc.end(&err)
	r := st.start(sc)
	fmt.Fprintf(w, "\n## %s\n", st.about)
	for _, load := range workloads() {
		if !chosen(s.workloads, load.name) {
			continue
		}
		results, err := measure(ctx, s, r, load)
		if err != nil {
			return fmt.Errorf("%s: %w", load.name, err)
		}
		load.table(w, load, results)
	}
	return nil
}

// measure runs a workload on every subject that takes part in it, in turn, for
// as many rounds as were asked for.
func measure(ctx context.Context, s settings, r *running, load workload) ([]result, error) {
	var results []result
	for _, sub := range r.subjects {
		if load.takes(sub) && (sub.kind != peer || chosen(s.subjects, sub.name)) {
			results = append(results, result{subject: sub})
		}
	}
	rounds := s.rounds
	if load.once {
		rounds = 1
	}
	for range rounds {
		for i := range results {
			fmt.Fprintf(os.Stderr, "%s: %s\n", load.name, results[i].subject.name)
			m, err := load.run(ctx, trial{running: r, subject: results[i].subject, each: s.each})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", results[i].subject.name, err)
			}
			results[i].rounds = append(results[i].rounds, m)
		}
	}
	return results, nil
}
