package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/bench/peers"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/report"
)

// runMatrix plays the safety matrix on the peers and on our backends beside them.
// A false claim of a peer's is a finding, and no failure. One of ours is a failure, and
// so is a cell that could not be played.
func runMatrix(ctx context.Context, s settings, w io.Writer) error {
	unwanted := func(words, name string) bool { return !chosen(words, name) }
	subjects := slices.DeleteFunc(peers.Subjects(), func(sub matrix.Subject) bool { return unwanted(s.subjects, sub.Name) })
	scenarios := slices.DeleteFunc(matrix.Scenarios(), func(sc matrix.Scenario) bool {
		return unwanted(s.scenarios, sc.Name) || sc.Kinds != [2]locker.Kind{} // no peer has declared others
	})
	if len(subjects)*len(scenarios) == 0 {
		return errors.New("matrix: -subjects or -scenarios leave nothing to play")
	}
	tell, told := report.Progress(s.stderr, len(subjects)*len(scenarios))
	m := matrix.Run(ctx, matrix.Settings{Start: testserver.StartChild, Done: tell}, subjects, scenarios)
	if told() < len(m.Cells) { // the page shows a whole run
		report.FalseClaims(w, m)
		return fmt.Errorf("%w after %d of %d runs: no report is written", context.Cause(ctx), told(), len(m.Cells))
	}
	report.Text(w, m)
	return errors.Join(
		writeTo(s.html, func(w io.Writer) error { return report.HTML(w, m) }),
		writeTo(s.markdown, func(w io.Writer) error {
			report.MarkdownUnder(w, m, peersHead(time.Now()))
			_, err := fmt.Fprint(w, "\n", peers.Notes)
			return err
		}),
		verdict(m),
	)
}

func verdict(m *matrix.Matrix) error {
	var errs []error
	for _, c := range m.FalseClaims() {
		if !peers.IsPeer(c.Subject) {
			errs = append(errs, fmt.Errorf("matrix: a false claim of ours: %s, %s: %s", c.Subject, c.Scenario, c.Why))
		}
	}
	if len(m.Skipped()) == len(m.Cells) {
		errs = append(errs, errors.New("matrix: nothing was measured: everything was skipped"))
	}
	if n := len(m.NotPlayed()); n > 0 {
		errs = append(errs, fmt.Errorf("matrix: %d cells could not be played", n))
	}
	return errors.Join(errs...)
}

// peersHead is the head of docs/PEERS.md.
func peersHead(now time.Time) string {
	head := fmt.Sprintf("# Other people's locks in the same matrix\n\n"+
		"Made by `make peers` on %s, with:\n\n", now.Format("2 January 2006"))
	for _, path := range peers.Modules() {
		head += fmt.Sprintf("- %s %s\n", path, versionOf(path))
	}
	return head + "\n" + peers.Intro
}

// versionOf is the version of a module that this program was built with.
func versionOf(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown version"
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == path })
	if i < 0 {
		return "of unknown version"
	}
	return info.Deps[i].Version
}

// writeTo writes a file, or nothing if there is no path.
func writeTo(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path) //nolint:gosec // the user's choice
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
