// Command compare breaks every backend on purpose, on real servers of this machine, and shows which
// of its promises each kept. "go run ./compare -help" says how, README.md of the module what it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/internal/interrupt"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/report"
	"github.com/lockstile/locker/proof/testbed"
)

const help = `usage: compare [flags]

compare starts real servers on free ports of this machine, and ends them. Each
scenario breaks one assumption. A backend that does not assume it must keep its
promises. The exit status is 1 if a promise was broken that should have been
kept, else 69 if something could not be played. If every run was skipped it is
69 as well, and no report is written. Nor is one if you interrupt the run: then
its servers and workers end, and its folders are removed.

Without --backends, --scenarios and --short everything is played, which takes
some minutes. With --soak faults come at random instead, in round after round,
each with a seed that --seed plays again. With --crowd as well, many processes
want one lock on servers that stay the same. A word that is a whole name chooses
that one alone. A word that is in no name is an error, which lists the names. If
FILE is "-" the report goes to stdout, and the text to stderr.

`

// Exit statuses, those of the command locker.
const (
	exitBroken      = 1
	exitUsage       = 64
	exitUnavailable = 69
)

func main() {
	matrix.BecomeWorker(testbed.Open)
	c, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(exitUsage) // package flag has said why
	}
	status, err := c.do()
	if err != nil {
		for line := range strings.Lines(err.Error()) { // several errors, joined
			fmt.Fprintln(os.Stderr, "compare:", strings.TrimSuffix(line, "\n"))
		}
	}
	os.Exit(status)
}

// command is what the flags say.
type command struct {
	backends, scenarios          string // words, by comma
	short                        bool
	soak                         time.Duration
	seed                         uint64
	crowd                        uint
	html, json, markdown, readme string // paths
}

func parse(args []string) (*command, error) {
	c := new(command)
	fs := flag.NewFlagSet("compare", flag.ContinueOnError)
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), help)
		fs.PrintDefaults()
	}
	fs.StringVar(&c.backends, "backends", "", "only backends with one of these `WORDS` in their name, separated by commas")
	fs.StringVar(&c.scenarios, "scenarios", "", "only scenarios with one of these `WORDS` in their name, separated by commas")
	fs.BoolVar(&c.short, "short", false, "only the backends and scenarios that show most, in about a minute")
	fs.DurationVar(&c.soak, "soak", 0, "break at random for `DURATION` instead, all kinds of locks at once")
	fs.Uint64Var(&c.seed, "seed", 0, "begin the soak with round `N`: a failure prints its number")
	fs.UintVar(&c.crowd, "crowd", 0, "have `N` processes want one lock in the soak, under a fault every two seconds")
	fs.StringVar(&c.html, "html", "", "write one page with a timeline of every run to `FILE`")
	fs.StringVar(&c.json, "json", "", "write everything that happened as JSON to `FILE`")
	fs.StringVar(&c.markdown, "markdown", "", "write the matrix as Markdown to `FILE`")
	fs.StringVar(&c.readme, "readme", "", "put the matrix in brief into `FILE`, between its two comments")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		err := fmt.Errorf("%q is one argument too many", fs.Arg(0))
		fmt.Fprintln(fs.Output(), "compare:", err)
		return nil, err
	}
	return c, nil
}

func (c *command) do() (int, error) {
	everybody, everything := testbed.Subjects(), matrix.Scenarios()
	if c.short {
		everybody, everything = testbed.Short()
	}
	subjects, noSubject := pick("--backends", everybody, c.backends, subjectName)
	scenarios, noScenario := pick("--scenarios", everything, c.scenarios, scenarioName)
	if err := errors.Join(noSubject, noScenario, c.writable()); err != nil {
		return exitUsage, err
	}
	ctx, follow := interrupt.Context()
	stderr := follow(os.Stderr)
	if c.soak > 0 {
		return c.soakAll(ctx, stderr, subjects)
	}
	if c.crowd != 0 || c.seed != 0 {
		return exitUsage, errors.New("--crowd and --seed are for a soak: say for how long, as in --soak 10m")
	}
	tell, told := report.Progress(stderr, len(subjects)*len(scenarios))
	m := matrix.Run(ctx, matrix.Settings{Start: testserver.StartChild, Done: tell}, subjects, scenarios)
	if told() < len(m.Cells) {
		return c.interrupted(ctx, m, fmt.Sprintf("%d of %d runs", told(), len(m.Cells)))
	}
	report.Text(c.textOutput(), m)
	if len(m.Skipped()) == len(m.Cells) {
		return exitUnavailable, fmt.Errorf("nothing was measured: all %d runs were skipped, for the reasons above", len(m.Cells))
	}
	if err := c.writeReports(m); err != nil {
		return exitUsage, err
	}
	return exitOf(m)
}

// interrupted is the end of a run that says too little for a report, which would take the place of
// one of a whole run. Whatever was played has been told while it went on, so that only what happened is left to tell.
func (c *command) interrupted(ctx context.Context, m *matrix.Matrix, played string) (int, error) {
	report.FalseClaims(c.textOutput(), m)
	status, claims := exitUnavailable, ""
	if n := len(m.FalseClaims()); n > 0 {
		status, claims = exitBroken, fmt.Sprintf(", false claims: %d", n)
	}
	return status, fmt.Errorf("%w after %s%s: no report is written", context.Cause(ctx), played, claims)
}

func exitOf(m *matrix.Matrix) (int, error) {
	switch {
	case len(m.FalseClaims()) > 0:
		return exitBroken, nil
	case len(m.NotPlayed()) > 0:
		return exitUnavailable, fmt.Errorf("%d runs could not be played: see above", len(m.NotPlayed()))
	}
	return 0, nil
}

// pick returns what the words in text choose, or all if there is no text. A word
// that is a whole name chooses that one, any other all names that contain it. A
// word that chooses nothing is an error: what was asked for would be left out
// without notice.
func pick[T any](flag string, all []T, text string, name func(T) string) ([]T, error) {
	if text == "" {
		return all, nil
	}
	var names, chosen []string
	for _, one := range all {
		names = append(names, name(one))
	}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		hits := []string{word}
		if !slices.Contains(names, word) {
			hits = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return word == "" || !strings.Contains(n, word) })
		}
		if len(hits) == 0 {
			return nil, fmt.Errorf("%s: the word %q is in none of: %s", flag, word, strings.Join(names, ", "))
		}
		chosen = append(chosen, hits...)
	}
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !slices.Contains(chosen, name(one)) }), nil
}

func subjectName(s matrix.Subject) string   { return s.Name }
func scenarioName(s matrix.Scenario) string { return s.Name }
