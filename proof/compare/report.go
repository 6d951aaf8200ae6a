package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/report"
	"github.com/lockstile/locker/proof/testbed"
)

// standardOutput is the path that stands for stdout.
const standardOutput = "-"

// files are the paths of reports that are whole files.
func (c *command) files() []string { return []string{c.html, c.json, c.markdown} }

// textOutput is where the text goes: out of the way of a report on stdout.
func (c *command) textOutput() io.Writer {
	if slices.Contains(c.files(), standardOutput) {
		return os.Stderr
	}
	return os.Stdout
}

// writable finds out before minutes have gone by whether reports can be written.
// What the files contain is left alone, and none is made: the run may be interrupted.
func (c *command) writable() error {
	for _, path := range c.files() {
		if path == "" || path == standardOutput {
			continue
		}
		_, missing := os.Stat(path)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666) //nolint:gosec // as os.Create
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if missing != nil {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	if c.readme == "" {
		return nil
	}
	_, _, err := around(c.readme)
	return err
}

func (c *command) writeReports(m *matrix.Matrix) error {
	soaked, err := soakPart(c.markdown)
	return errors.Join(
		err,
		writeTo(c.html, page(m)),
		writeTo(c.markdown, func(w io.Writer) error {
			report.Markdown(w, m)
			_, err := io.WriteString(w, soaked)
			return err
		}),
		writeTo(c.json, asJSON(m)),
		putInto(c.readme, m),
	)
}

// page writes the matrix as HTML.
func page(m *matrix.Matrix) func(io.Writer) error {
	return func(w io.Writer) error { return report.HTML(w, m) }
}

func asJSON(v any) func(io.Writer) error {
	return func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
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

// The matrix in brief goes between these in a text that people write.
const (
	briefBegins = "<!-- make compare -->\n"
	briefEnds   = "<!-- end -->\n"
	briefPage   = "docs/GUARANTEES.md"
)

// putInto replaces what stands between the two lines, or does nothing if there is
// no path.
func putInto(path string, m *matrix.Matrix) error {
	if path == "" {
		return nil
	}
	before, after, err := around(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+briefBegins+brief(m)+briefEnds+after), 0o666) //nolint:gosec // as os.Create
}

// around returns what stands before and after the place of the matrix.
func around(path string) (before, after string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	before, rest, begins := strings.Cut(string(text), briefBegins)
	_, after, ends := strings.Cut(rest, briefEnds)
	if !begins || !ends {
		return "", "", fmt.Errorf("%s has no lines %q and %q to put the matrix between", path, strings.TrimSpace(briefBegins), strings.TrimSpace(briefEnds))
	}
	return before, after, nil
}

// brief is the matrix in a few columns: the backends as most people run them.
func brief(m *matrix.Matrix) string {
	few, _ := testbed.Short()
	few = slices.DeleteFunc(few, func(s matrix.Subject) bool {
		return !slices.ContainsFunc(m.Subjects, func(played matrix.Subject) bool { return played.Name == s.Name })
	})
	var text strings.Builder
	report.Brief(&text, m, briefPage, few)
	return text.String()
}
