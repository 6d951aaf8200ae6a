//go:build unix

// Command mutants shows that the lines which keep locks safe are tested: it breaks each of them, one at a time, and
// the tests that are there for it must fail.
//
// A mutant is a row of a table. The table of a package is proof/mutants/PACKAGE.txt; locker.txt is the root's. Rows stand
// below the name of the file that they break, and an empty line ends a row:
//
//	# driver/turn.go
//
//	Who asks for Lost after an Unlock is told of a loss.
//	errors say what is known: TestUnlockDoesNotCloseLostThatNobodyHadAskedForBefore
//	-		if errors.Is(t.err, locker.ErrLost) {
//	+		if t.err != nil {
//
// First come one or two sentences on what breaks for a user. Then comes the rule that is broken, by its name in
// docs/BACKENDS.md, and the test that must notice, as "go test" prints it: "TestName/sub_test" of this package, or
// "./adapters/cronlock TestName" of another. With several such lines, each must notice. Then come the lines as they stand, and
// what stands in their place, as in a diff: "-" begins a line that goes, "+" one that comes, and a space one that stays. The
// lines that go or stay must be in the file exactly once. After "@@", or "@@ other/file.go", come lines of another place.
//
// The working tree is not touched: go's -overlay, in GOFLAGS, has every go command see the broken files, also
// those that tests call.
//
// Other tools for Go (gremlins 0.6, the forks of go-mutesting) make their own mutations of Go's operators and
// statements. They take neither given lines, nor Lua or SQL, nor the tests that are to notice. Go-mutesting has a hook
// for a command that tests a mutation, but that command would be this one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	s := flags(flag.CommandLine)
	flag.Parse()
	err := run(ctx, os.Stdout, *s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type settings struct {
	root, only, since string
	lanes             int
	timeout           time.Duration // of one run of tests, without its build
}

// flags returns the settings that the flags fill when they are parsed.
func flags(fs *flag.FlagSet) *settings {
	s := new(settings)
	fs.StringVar(&s.only, "only", "", "only the mutants of this package and those below it, or of one line, driver:17")
	fs.StringVar(&s.since, "since", "", "only the mutants of files, rows and tests changed since this commit")
	fs.StringVar(&s.root, "root", "..", "the folder of the users' module, seen from the current one, which is proof by default")
	fs.IntVar(&s.lanes, "lanes", 3, "how many mutants are tried at once: most tests wait more than they work")
	fs.DurationVar(&s.timeout, "timeout", 3*time.Minute, "for the tests of one mutant")
	return s
}

var errNotKilled = errors.New("not every mutant was killed")

// run tries all mutants that are chosen, and returns an error unless each was killed.
func run(ctx context.Context, w io.Writer, s settings) error {
	began := time.Now()
	all, err := load(s.root)
	if err != nil {
		return err
	}
	chosen, err := choose(ctx, s, all)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		_, err := fmt.Fprintln(w, s.nothing(all))
		return err
	}
	b, err := newBench(s)
	if err != nil {
		return err
	}
	defer b.close()
	results := b.try(ctx, w, chosen)
	if ctx.Err() == nil && s.only == "" && s.since == "" {
		for _, rule := range all.unused() {
			fmt.Fprintf(w, "no mutant breaks the rule %q\n", rule)
		}
	}
	err = report(w, results, time.Since(began))
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// nothing says why no mutant is tried: that of those chosen none has changed. Nothing else leaves none.
func (s settings) nothing(all *mutants) string {
	chosen := fmt.Sprintf("all %d mutants", len(all.all))
	if s.only != "" {
		chosen = fmt.Sprintf("the %d mutants of -only %s", len(all.named(s.only)), s.only)
	}
	return fmt.Sprintf("no mutant was tried: of %s, none has changed since %s, nor a file that it breaks, nor a test that must notice it", chosen, s.since)
}

// try tests the unbroken code, then each mutant, and tells of each. Those that ctx cuts off have no mutant in their
// result.
func (b *bench) try(ctx context.Context, w io.Writer, ms []*mutant) []result {
	whole := b.whole(ctx, ms)
	results := make([]result, len(ms))
	var mu sync.Mutex
	b.lanes(len(ms), func(i int) {
		m := ms[i]
		r := result{mutant: m, verdict: whole[m]}
		if r.verdict.what == "" {
			began := time.Now()
			r.verdict = b.verdict(ctx, m)
			r.took = time.Since(began)
		}
		if ctx.Err() != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		results[i] = r
		fmt.Fprint(w, r.told())
	})
	return results
}

// lanes calls f for every number below n, several at once.
func (b *bench) lanes(n int, f func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range max(b.lanesAtOnce, 1) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// result is what became of a mutant.
type result struct {
	mutant  *mutant
	verdict verdict
	took    time.Duration
}

// told is a line, and below it what there is to know of a mutant that was not killed.
func (r result) told() string {
	line := fmt.Sprintf("%-16s %6.1fs  %s: %s\n", r.verdict.what, r.took.Seconds(), r.mutant.name, r.verdict.why)
	if r.verdict.what == killedBy {
		return line
	}
	line += "    " + r.mutant.sentence + "\n"
	if said := strings.TrimRight(r.verdict.output, " \n"); said != "" {
		line += said + "\n"
	}
	return line
}

// report prints the sum, with the names of what was not killed: all else has been told. It returns an
// error if something was tried and not killed.
func report(w io.Writer, results []result, took time.Duration) error {
	killed, untried := 0, 0
	var others []string
	for _, r := range results {
		switch {
		case r.mutant == nil:
			untried++
		case r.verdict.what == killedBy:
			killed++
		default:
			others = append(others, r.mutant.name)
		}
	}
	fmt.Fprintf(w, "\n%d of %d mutants killed in %v\n", killed, len(results), took.Round(time.Second))
	if untried > 0 {
		fmt.Fprintf(w, "not tried: %d\n", untried)
	}
	if len(others) > 0 {
		fmt.Fprintf(w, "not killed: %s\n", strings.Join(others, ", "))
		return errNotKilled
	}
	return nil
}
