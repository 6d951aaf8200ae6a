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
	"slices"
	"strings"

	"github.com/lockstile/locker/conformance/matrix"
	"github.com/lockstile/locker/internal/testbed"
	"github.com/lockstile/locker/internal/testserver"
)

var compareCommand = command{
	name:  compareName,
	about: "break every backend on purpose and show what it kept",
	flags: []string{"backends", "scenarios", "short", "html", "json", "markdown", "readme"},
	more: `
Starts real servers on this machine, on free ports, and ends them. Every scenario
breaks one assumption about the world; what a backend's declaration does not lean
on must survive. Exits with 1 if something broke that was promised, else with 69
if something could not be played. Where nothing at all could be, because every
run was skipped, that is 69 as well, and no report is written. Without the flags
that choose, everything is played, which takes some minutes; a WORD that is
nowhere is an error that lists the names, and one that is a whole name chooses
that one alone. A FILE of "-" is stdout; the text goes to stderr then.
`,
	do: compare,
}

const compareName = "compare"

// workerVerb makes a process a worker of compare. It is not for people.
const workerVerb = "compare-worker"

func compareWorker(url string) error {
	return matrix.Work(context.Background(), testbed.Open, url, os.Stdin, os.Stdout)
}

func compare(in invocation) (int, error) {
	everybody, everything := testbed.Subjects(), matrix.Scenarios()
	if in.short {
		everybody, everything = testbed.Short()
	}
	subjects, noSubject := pick("--backends", everybody, in.backends, subjectName)
	scenarios, noScenario := pick("--scenarios", everything, in.scenarios, scenarioName)
	if err := errors.Join(noSubject, noScenario, writable(in.html, in.markdown, in.jsonFile), hasPlace(in.readme)); err != nil {
		return exitUsage, fmt.Errorf("compare: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return exitUnavailable, fmt.Errorf("compare: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	m := matrix.Run(ctx, matrix.Settings{
		Worker: func(url string) *exec.Cmd { return exec.Command(self, workerVerb, url) },
		Start:  testserver.StartChild,
		Done:   matrix.Progress(os.Stderr, len(subjects)*len(scenarios)),
	}, subjects, scenarios)
	m.WriteText(textOutput(in))
	if len(m.Skipped()) == len(m.Cells) {
		return exitUnavailable, fmt.Errorf("compare: nothing was measured: all %d runs were skipped, for the reasons above", len(m.Cells))
	}
	if err := writeReports(in, m); err != nil {
		return exitUsage, fmt.Errorf("compare: %w", err)
	}
	switch {
	case len(m.FalseClaims()) > 0:
		return 1, nil
	case len(m.NotPlayed()) > 0:
		return exitUnavailable, fmt.Errorf("compare: %d runs could not be played: see above", len(m.NotPlayed()))
	}
	return 0, nil
}

// pick returns those whose name is one of the words, or, where a word is nobody's
// name, has it in it; all where there is no text. A word that chooses nobody is an
// error: what was asked for would be left out, and nobody would notice.
func pick[T any](flag string, all []T, text string, name func(T) string) (some []T, err error) {
	if text == "" {
		return all, nil
	}
	chosen := make([]bool, len(all))
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		whole := slices.ContainsFunc(all, func(one T) bool { return name(one) == word })
		hit := false
		for i, one := range all {
			if name(one) == word || !whole && word != "" && strings.Contains(name(one), word) {
				chosen[i], hit = true, true
			}
		}
		if !hit {
			return nil, noneOf(flag, word, all, name)
		}
	}
	for i, one := range all {
		if chosen[i] {
			some = append(some, one)
		}
	}
	return some, nil
}

func subjectName(s matrix.Subject) string   { return s.Name }
func scenarioName(s matrix.Scenario) string { return s.Name }

func noneOf[T any](flag, word string, all []T, name func(T) string) error {
	var names []string
	for _, one := range all {
		names = append(names, name(one))
	}
	return fmt.Errorf("%s: the word %q is in none of: %s", flag, word, strings.Join(names, ", "))
}

func writeReports(in invocation, m *matrix.Matrix) error {
	return errors.Join(
		writeTo(in.html, m.WriteHTML),
		writeTo(in.markdown, func(w io.Writer) error { m.WriteMarkdown(w); return nil }),
		putInto(in.readme, m),
		writeTo(in.jsonFile, func(w io.Writer) error {
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			return enc.Encode(m)
		}),
	)
}

// writable finds out before minutes have gone by whether files can be written.
// What they contain is left alone.
func writable(paths ...string) error {
	for _, path := range paths {
		if path == "" || path == standardOutput {
			continue
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666) //nolint:gosec // as os.Create
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// standardOutput is the path that stands for stdout.
const standardOutput = "-"

// textOutput is where the text goes: out of the way of a report on stdout.
func textOutput(in invocation) io.Writer {
	if slices.Contains([]string{in.html, in.markdown, in.jsonFile}, standardOutput) {
		return os.Stderr
	}
	return os.Stdout
}

// writeTo writes a file, or nothing if there is no path.
func writeTo(path string, write func(io.Writer) error) error {
	switch path {
	case "":
		return nil
	case standardOutput:
		w := bufio.NewWriter(os.Stdout)
		return errors.Join(write(w), w.Flush())
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(write(w), w.Flush(), f.Close())
}
