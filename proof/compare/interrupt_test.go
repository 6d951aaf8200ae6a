//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Goal: whoever ends a run before its time finds no folder of it, no process, and the pages as they
// were.
func TestARunThatIsInterruptedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	scenarios := []string{"--backends", "local,redlock"}
	soak := []string{"--backends", "local,redlock", "--soak", "1h"}
	const runs, rounds = `compare: interrupted \([a-z ]+\) after \d+ of \d+ runs: no report is written\n`, `compare: interrupted \(interrupt\) after 0 rounds: no report is written\n`
	for name, c := range map[string]struct {
		args    []string
		signals []syscall.Signal // none: nobody reads what it says any more
		sum     string           // that it ends with
	}{
		"interrupted":       {scenarios, []syscall.Signal{syscall.SIGINT}, runs},
		"interrupted twice": {scenarios, []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, runs},
		"terminated":        {scenarios, []syscall.Signal{syscall.SIGTERM}, runs},
		"hung up":           {scenarios, []syscall.Signal{syscall.SIGHUP}, runs},
		"a soak":            {soak, []syscall.Signal{syscall.SIGINT}, rounds},
		"read by nobody":    {scenarios, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			page, missing := filepath.Join(dir, "page.md"), filepath.Join(dir, "page.html")
			writeFile(t, page, "measured")
			folders := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0], append(c.args, "--markdown", page, "--html", missing)...)
			cmd.Env = append(os.Environ(), "COMPARE_TEST=command", "TMPDIR="+folders)
			var text strings.Builder
			cmd.Stdout = &text
			said := endEarly(t, cmd, folders, c.signals)
			if status := cmd.ProcessState.ExitCode(); status != exitUnavailable {
				t.Errorf("it ended with %v and said:\n%s", cmd.ProcessState, said)
			}
			if !regexp.MustCompile(c.sum + "$").MatchString(said) {
				t.Errorf("it does not end with how far it came:\n%s", said)
			}
			if whole := said + text.String(); strings.Contains(strings.ToLower(whole), "not played") || strings.Contains(whole, "| local") {
				t.Errorf("it tells of runs that were cut off:\n%s", whole)
			}
			if left := in(t, folders); len(left) > 0 {
				t.Errorf("folders are left: %q", left)
			}
			if left := started(t, folders); len(left) > 0 {
				t.Errorf("processes are left: %q", left)
			}
			if text := readFile(t, page); text != "measured" {
				t.Errorf("the page is now\n%s", text)
			}
			if _, err := os.Stat(missing); err == nil {
				t.Errorf("there is a %s, of a run that was not whole", missing)
			}
		})
	}
}

// endEarly starts the command, and interrupts it when it plays. It returns what the command has
// said on stderr, once it has ended.
func endEarly(t *testing.T, cmd *exec.Cmd, folders string, signals []syscall.Signal) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	lines := bufio.NewReader(r)
	said, err := lines.ReadString('\n')
	plays := func() bool { // there are folders, and processes beside the command's, where the system shows them
		n := len(started(t, folders))
		return len(in(t, folders)) > 0 && (n == 0 || n > 3)
	}
	for end := time.Now().Add(time.Minute); err == nil && !plays(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			err = errors.New("nothing plays")
		}
	}
	if err != nil {
		t.Fatalf("%v after %q", err, said)
	}
	if len(signals) == 0 {
		_ = r.Close()
	}
	for _, s := range signals {
		if err := cmd.Process.Signal(s); err != nil {
			t.Error(err)
		}
	}
	rest, _ := io.ReadAll(lines) // of a pipe that is closed there is no rest
	_ = cmd.Wait()               // its status is looked at by the caller
	return said + string(rest)
}

// in returns what is in a folder.
func in(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// started returns the processes that have inherited a temporary folder, where the system shows it.
func started(t *testing.T, folder string) (left []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		environ, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(environ, []byte("TMPDIR="+folder+"\x00")) {
			continue // it has ended, or is somebody else's
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		left = append(left, fmt.Sprintf("%s: %q", path, line))
	}
	return left
}
