package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance/matrix"
	"github.com/lockstile/locker/internal/testbed"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

var compareCommand = command{
	name:  compareName,
	about: "break every backend on purpose and show what it kept",
	flags: []string{"backends", "scenarios", "html", "json", "markdown"},
	more: `
Starts real servers on this machine, on free ports, and ends them. Every scenario
breaks one assumption about the world; what a backend's declaration does not lean
on must survive. Exits with 1 if something broke that was promised. Without the
flags that choose, everything is played, which takes some minutes.
`,
	do: compare,
}

const compareName = "compare"

// workerVerb makes a process a worker of compare. It is not for people.
const workerVerb = "compare-worker"

func compareWorker(url string) error {
	opener := func(ctx context.Context, url string) (locker.Locker, error) { return open.URL(ctx, url) }
	return matrix.Work(context.Background(), opener, url, os.Stdin, os.Stdout)
}

func compare(in invocation) (int, error) {
	subjects := pick(testbed.Subjects(), in.backends, func(s matrix.Subject) string { return s.Name })
	scenarios := pick(matrix.Scenarios(), in.scenarios, func(s matrix.Scenario) string { return s.Name })
	if len(subjects)*len(scenarios) == 0 {
		return exitUsage, errors.New("compare: nothing is chosen: see \"locker help compare\"")
	}
	self, err := os.Executable()
	if err != nil {
		return exitUnavailable, fmt.Errorf("compare: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	done, all := 0, len(subjects)*len(scenarios)
	m, err := matrix.Run(ctx, matrix.Settings{
		Worker: func(url string) *exec.Cmd { return exec.Command(self, workerVerb, url) },
		Start:  testserver.StartChild,
		Done: func(c matrix.Cell) {
			done++
			fmt.Fprintf(os.Stderr, "%3d/%d  %s, %s: %s %s\n", done, all, c.Subject, c.Scenario, c.Verdict, c.Why)
		},
	}, subjects, scenarios)
	if err != nil {
		return exitUnavailable, fmt.Errorf("compare: %w", err)
	}
	m.WriteText(os.Stdout)
	if err := writeReports(in, m); err != nil {
		return exitUsage, fmt.Errorf("compare: %w", err)
	}
	if len(m.FalseClaims()) > 0 {
		return 1, nil
	}
	return 0, nil
}

// pick returns those whose name has one of the words in it; all without words.
func pick[T any](all []T, words string, name func(T) string) (some []T) {
	for _, one := range all {
		for word := range strings.SplitSeq(words, ",") {
			if strings.Contains(name(one), strings.TrimSpace(word)) {
				some = append(some, one)
				break
			}
		}
	}
	return some
}

func writeReports(in invocation, m *matrix.Matrix) error {
	return errors.Join(
		writeTo(in.html, m.WriteHTML),
		writeTo(in.markdown, func(w io.Writer) error { m.WriteMarkdown(w); return nil }),
		writeTo(in.jsonFile, func(w io.Writer) error {
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			return enc.Encode(m)
		}),
	)
}

// writeTo writes a file, or nothing if there is no path.
func writeTo(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(write(w), w.Flush(), f.Close())
}
