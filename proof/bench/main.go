// Command bench measures Lockstile beside other lock libraries, on the same
// servers, in one run, and prints Markdown. What counts are the ratios: to the
// floor, which is the two cheapest bare commands through the same client, and to
// the best other library. Rounds of all subjects are interleaved, and a row shows
// the medians. Requests are those that the servers counted, per lock and unlock.
//
// With -matrix it measures nothing: it breaks the other libraries on purpose, in
// the scenarios of "make compare".
//
// One client library of note is missing, rueidislock: not every module proxy has its
// modules, and a benchmark that does not build measures nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker/proof/bench/peers"
	"github.com/lockstile/locker/proof/internal/interrupt"
	"github.com/lockstile/locker/proof/matrix"
)

// settings are what the command line says.
type settings struct {
	stores    string
	workloads string
	subjects  string
	rounds    int
	each      time.Duration
	quick     bool
	profile   string // a path; "" for none

	matrix    bool
	scenarios string
	markdown  string // paths; "" for none
	html      string

	stderr io.Writer // for what is going on
}

func main() {
	matrix.BecomePeerWorker(peers.Open)
	if len(os.Args) == 3 && os.Args[1] == processVerb {
		leave(beProcess(os.Args[2]))
	}
	var s settings
	flag.StringVar(&s.stores, "stores", "", "only these, by comma: "+strings.Join(storeNames(), ", "))
	flag.StringVar(&s.workloads, "workloads", "", "only those whose name has one of these words in it, by comma")
	flag.StringVar(&s.subjects, "subjects", "", "only these beside the floors, by words as above")
	flag.IntVar(&s.rounds, "rounds", 3, "interleaved rounds")
	flag.DurationVar(&s.each, "each", 400*time.Millisecond, "time for one workload of one subject in one round")
	flag.BoolVar(&s.quick, "quick", false, "one short round, with a tenth of the locks, waiters and names")
	flag.StringVar(&s.profile, "profile", "", "write a profile of the whole run to this file, and one of allocations beside it (.allocs)")
	flag.BoolVar(&s.matrix, "matrix", false, "no benchmark: play the safety matrix on the other libraries and on our backends beside them")
	flag.StringVar(&s.scenarios, "scenarios", "", "of the matrix only these, by words as above")
	flag.StringVar(&s.markdown, "markdown", "", "write the matrix to this file as Markdown")
	flag.StringVar(&s.html, "html", "", "write the matrix to this file as a page with timelines")
	flag.Parse()
	if s.quick {
		s.rounds, s.each = 1, 250*time.Millisecond
	}
	if err := s.check(flag.Args()); err != nil {
		leave(err)
	}
	ctx, follow := interrupt.Context()
	s.stderr = follow(os.Stderr)
	stdout := follow(os.Stdout)
	err := profiled(s.profile, func() error {
		if s.matrix {
			return runMatrix(ctx, s, stdout)
		}
		return run(ctx, s, stdout)
	})
	leave(err)
}

// check refuses settings that would measure nothing, or something else than was asked for.
func (s settings) check(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is no flag: to choose stores say -stores %s", args[0], args[0])
	}
	if s.rounds < 1 || s.each <= 0 {
		return errors.New("-rounds and -each must be above zero")
	}
	if s.matrix {
		return nil
	}
	if s.scenarios+s.markdown+s.html != "" {
		return errors.New("-scenarios, -markdown and -html are for -matrix")
	}
	var loads []string
	for _, load := range workloads() {
		loads = append(loads, load.name)
	}
	return errors.Join(known("-stores", s.stores, storeNames()), known("-workloads", s.workloads, loads))
}

// known returns an error for a word that no name has in it.
func known(option, words string, names []string) error {
	for word := range strings.SplitSeq(words, ",") {
		if words != "" && (word == "" || !slices.ContainsFunc(names, func(name string) bool { return chosen(word, name) })) {
			return fmt.Errorf("%s: nothing is called %q: there are %s", option, word, strings.Join(names, ", "))
		}
	}
	return nil
}

func leave(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// profiled calls f under the profiler if there is a file for it.
func profiled(path string, f func() error) error {
	if path == "" {
		return f()
	}
	file, err := os.Create(path) //nolint:gosec // the user's choice
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(err, file.Close())
	}
	err = f()
	pprof.StopCPUProfile()
	err = errors.Join(err, file.Close())
	if file, fileErr := os.Create(path + ".allocs"); fileErr != nil { //nolint:gosec // as above
		err = errors.Join(err, fileErr)
	} else {
		err = errors.Join(err, pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
	}
	return err
}

// run measures store after store. One that fails does not stop the others.
func run(ctx context.Context, s settings, w io.Writer) error {
	fmt.Fprintf(w, "%s, %d cores, %s. Medians of %d interleaved rounds.\n", runtime.Version(), runtime.NumCPU(), runtime.GOOS, s.rounds)
	var errs []error
	for _, st := range stores() {
		if !chosen(s.stores, st.name) || ctx.Err() != nil {
			continue
		}
		if err := measureStore(ctx, s, st, w); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", st.name, err))
		}
	}
	if ctx.Err() != nil {
		errs = append(errs, context.Cause(ctx))
	}
	return errors.Join(errs...)
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

// measureStore starts a store, measures it and ends it.
func measureStore(ctx context.Context, s settings, st store, w io.Writer) (err error) {
	lab := new(matrix.Lab)
	defer lab.Close()
	failed := lab.Try(func() { err = measureIn(ctx, lab, s, st, w) })
	return errors.Join(failed, err)
}

func measureIn(ctx context.Context, lab *matrix.Lab, s settings, st store, w io.Writer) error {
	r := st.start(lab)
	r.subjects = append(r.subjects, channel)
	fmt.Fprintf(w, "\n## %s\n", st.about)
	var errs []error
	for _, load := range workloads() {
		if !chosen(s.workloads, load.name) || ctx.Err() != nil || load.reach && r.addrs == nil {
			continue
		}
		results, failed := measure(ctx, s, r, load)
		if ctx.Err() != nil {
			break // a part of the rounds has no medians
		}
		if len(results) > 0 {
			load.table(w, load, results)
		}
		for _, err := range failed {
			fmt.Fprintf(w, "\nNot measured: %v\n", err)
			errs = append(errs, fmt.Errorf("%s: %w", load.name, err))
		}
	}
	return errors.Join(errs...)
}

// measure runs a workload on every subject that takes part in it, in turn, for as many
// rounds as were asked for. Each round begins with another subject, because a subject
// may slow down the next one. A subject that fails takes part no more.
func measure(ctx context.Context, s settings, r *running, load workload) (results []result, failed []error) {
	for _, sub := range r.subjects {
		if load.takes(sub) && (sub.kind == floor || chosen(s.subjects, sub.name)) {
			results = append(results, result{subject: sub})
		}
	}
	rounds := s.rounds
	if load.once {
		rounds = 1
	}
	for round := range rounds {
		for n := range results {
			res := &results[(n+round)%len(results)]
			if res.failed || ctx.Err() != nil {
				continue
			}
			_, _ = fmt.Fprintf(s.stderr, "%s: %s\n", load.name, res.subject.name)
			m, err := load.measure(ctx, trial{running: r, subject: res.subject, each: s.each, quick: s.quick})
			if res.failed = err != nil; res.failed && ctx.Err() == nil {
				failed = append(failed, fmt.Errorf("%s: %w", res.subject.name, err))
			}
			res.rounds = append(res.rounds, m)
		}
	}
	return slices.DeleteFunc(results, func(res result) bool { return res.failed }), failed
}
