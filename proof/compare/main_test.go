//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

// TestMain makes this program the command, or a worker, where one is wanted.
func TestMain(m *testing.M) {
	matrix.BecomeWorker(testbed.Open)
	if os.Getenv("COMPARE_TEST") == "command" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// compare runs the command to its end.
func compare(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "COMPARE_TEST=command")
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestWrongArgumentIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, wants []string }{
		{[]string{"--backends", "lock-o-matic"}, []string{"--backends", `"lock-o-matic"`, "singlenode", "local"}},
		{[]string{"--backends", "local", "--scenarios", "herd,hred"}, []string{`--scenarios: the word "hred"`, "dead waiter"}},
		{[]string{"--short", "--scenarios", "failover"}, []string{"--scenarios", `"failover"`, "server crashes"}},
		{[]string{"--scenarios", "rain"}, []string{"--scenarios", `"rain"`, "dead holder"}},
		{[]string{"--soak", "1s", "--backends", "local", "--scenarios", "herd"}, []string{"--soak", "leave out --scenarios"}},
		{[]string{"--soak", "1s", "--backends", "local", "--readme", "../../README.md"}, []string{"--soak", "--readme"}},
		{[]string{"--backends", "local", "--scenarios", "herd", "--seed", "7"}, []string{"--seed", "--soak"}},
		{[]string{"--backends", "local", "--scenarios", "herd", "--crowd", "7"}, []string{"--crowd", "--soak"}},
		{[]string{"--backends", "local", "--scenarios", "herd", "--html", "/no/such/page"}, []string{"/no/such/page"}},
		{[]string{"--backends", "local", "--scenarios", "herd", "--readme", "main_test.go"}, []string{"main_test.go has no lines"}},
		{[]string{"rain"}, []string{`"rain" is one argument too many`}},
		{[]string{"--rain"}, []string{"-rain"}},
	} {
		status, out, errs := compare(t, c.args...)
		if status != exitUsage || out != "" {
			t.Errorf("%q: status %d, on stdout %q", c.args, status, out)
		}
		for _, want := range c.wants {
			if !strings.Contains(errs, want) {
				t.Errorf("%q: %q is not in %q", c.args, want, errs)
			}
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
