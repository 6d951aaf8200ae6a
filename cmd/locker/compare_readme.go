package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lockstile/locker/conformance/matrix"
	"github.com/lockstile/locker/internal/testbed"
)

// The matrix in brief goes between these in a text that people write.
const (
	briefBegins = "<!-- locker compare --readme -->\n"
	briefEnds   = "<!-- end -->\n"
	briefPage   = "docs/GUARANTEES.md"
)

// brief is the matrix in a few columns: the backends as most people run them.
func brief(m *matrix.Matrix) string {
	few, _ := testbed.Short()
	few = slices.DeleteFunc(few, func(s matrix.Subject) bool {
		return !slices.ContainsFunc(m.Subjects, func(played matrix.Subject) bool { return played.Name == s.Name })
	})
	var text strings.Builder
	m.WriteBrief(&text, briefPage, few)
	return text.String()
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

// hasPlace finds out before minutes have gone by.
func hasPlace(path string) error {
	if path == "" {
		return nil
	}
	_, _, err := around(path)
	return err
}

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
