//go:build unix

// Command mutants shows that the lines which keep locks safe are tested: each patch below its
// folder breaks one of them, and the tests that the patch names must notice it.
//
// A patch is a file proof/mutants/PACKAGE/WHAT-BREAKS.patch; PACKAGE is locker for the
// root's. It begins with one or two sentences on what breaks for a user, and goes on:
//
//	Rule: a name from the list in docs/BACKENDS.md
//	Noticed by: ./driver ^TestName$/^subtest$
//	Noticed by: ./adapters/cron -race ^TestName$
//
// Then comes a diff that "git apply" takes in the root. Each line "Noticed by" is the folder of a
// package, and what "go test" gets as -run; all of these lines must notice the patch. The working
// tree is not touched: go's -overlay, in GOFLAGS, has every go command see the patched files,
// also those that tests call.
//
// Other tools for Go (gremlins 0.6, the forks of go-mutesting) make their own
// mutations of Go's operators and statements, and take neither a patch, nor one of Lua or SQL, nor the
// tests that are to notice it. Go-mutesting has a hook for a command that tests a mutation, but that
// command would be this one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	only := flag.String("only", "", "only the patches of this package and those below it")
	since := flag.String("since", "", "only the patches that concern files changed since this commit")
	root := flag.String("root", ".", "the folder of the users' module")
	lanes := flag.Int("lanes", 2, "how many patches are tried at once")
	timeout := flag.Duration("timeout", 3*time.Minute, "for the tests of one patch")
	flag.Parse()
	err := run(ctx, settings{root: *root, only: *only, since: *since, lanes: *lanes, timeout: *timeout})
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

var errNotKilled = errors.New("not every patch was killed")

// run tries all patches that are chosen, and returns an error unless each was killed.
func run(ctx context.Context, s settings) error {
	began := time.Now()
	all, err := load(s.root)
	if err != nil {
		return err
	}
	chosen, err := choose(ctx, s, all)
	if err != nil {
		return err
	}
	b, err := newBench(s)
	if err != nil {
		return err
	}
	defer b.close()
	results := b.try(ctx, chosen)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if s.only == "" && s.since == "" {
		for _, rule := range all.unused() {
			fmt.Printf("no patch breaks the rule %q\n", rule)
		}
	}
	return report(results, time.Since(began))
}

// try tests the unbroken code, then each patch, and prints a line for each.
func (b *bench) try(ctx context.Context, patches []*patch) []result {
	whole := b.whole(ctx, patches)
	results := make([]result, len(patches))
	var mu sync.Mutex
	b.lanes(len(patches), func(i int) {
		p := patches[i]
		r := result{patch: p, verdict: whole[p]}
		if r.verdict.what == "" {
			began := time.Now()
			r.verdict = b.verdict(ctx, p)
			r.took = time.Since(began)
		}
		if ctx.Err() != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		results[i] = r
		fmt.Println(r.line())
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

// result is what became of a patch.
type result struct {
	patch   *patch
	verdict verdict
	took    time.Duration
}

func (r result) line() string {
	return fmt.Sprintf("%-16s %6.1fs  %s: %s", r.verdict.what, r.took.Seconds(), r.patch.name, r.verdict.why)
}

// report prints what was not killed once more, and the sum.
func report(results []result, took time.Duration) error {
	killed := 0
	for _, r := range results {
		if r.verdict.what == killedBy {
			killed++
			continue
		}
		fmt.Printf("\n%s\n    %s\n", r.line(), r.patch.sentence)
		if r.verdict.output != "" {
			fmt.Printf("%s\n", r.verdict.output)
		}
	}
	fmt.Printf("\n%d of %d patches killed in %v\n", killed, len(results), took.Round(time.Second))
	if killed < len(results) {
		return errNotKilled
	}
	return nil
}
