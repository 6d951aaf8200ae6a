//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ran is what became of a run of tests.
type ran struct {
	tests    map[string]string // how each ended: pass, fail or skip; run if it has not
	lines    []string          // what was said, the end of it
	notBuilt bool
	timedOut bool
	err      error // of go test: nil if all has passed
}

// test runs the tests of a package that the pattern names.
func (b *bench) test(ctx context.Context, dir, pattern, overlay string, timeout time.Duration) *ran {
	const build = 10 * time.Minute // on a machine that does much else
	ctx, cancel := context.WithTimeout(ctx, timeout+build)
	defer cancel()
	args := []string{"test", "-json", "-count=1", "-vet=off", "-ldflags=-w", "-timeout", timeout.String(), "-run", pattern}
	if overlay != "" {
		args = append(args, "-failfast")
	}
	r := &ran{tests: make(map[string]string)}
	cmd := b.command(ctx, dir, overlay, append(args, ".")...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = cmd.Stdout
		err = cmd.Start()
	}
	if err != nil {
		r.err = err
		return r
	}
	r.read(out)
	r.err = cmd.Wait()
	r.timedOut = r.timedOut || ctx.Err() != nil
	return r
}

// asGroup has the end of a command's context end its children, too.
func asGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
}

// read reads what "go test -json" says.
func (r *ran) read(from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.hear(line)
		}
		if err != nil {
			return
		}
	}
}

func (r *ran) hear(line string) {
	var e struct{ Action, Test, Output string }
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		e.Action, e.Output = "output", line // of go itself
	}
	switch e.Action {
	case "build-fail":
		r.notBuilt = true
	case "run", "pass", "fail", "skip":
		if e.Test != "" {
			r.tests[e.Test] = e.Action
		}
	case "output", "build-output":
		if strings.Contains(e.Output, "panic: test timed out after ") || strings.HasPrefix(e.Output, "*** Test killed with ") {
			r.timedOut = true
		}
		const most = 60 // lines
		r.lines = append(r.lines, e.Output)
		r.lines = r.lines[max(len(r.lines)-most, 0):]
	}
}

func (r *ran) said() string {
	return "    " + strings.ReplaceAll(strings.Join(r.lines, ""), "\n", "\n    ")
}

// broken reports whether the run as a whole has failed, and not only some of its tests.
func (r *ran) broken() bool {
	failed, unfinished := false, false
	for _, how := range r.tests {
		failed = failed || how == "fail"
		unfinished = unfinished || how == "run"
	}
	return r.err != nil && (unfinished || !failed)
}

// failed names the test that failed, with its subtest, or the one in which the program ended.
func (r *ran) failed() string {
	for _, how := range []string{"fail", "run"} {
		var names []string
		for name, is := range r.tests {
			if is == how {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			slices.SortFunc(names, func(a, b string) int { // the innermost first
				if d := strings.Count(b, "/") - strings.Count(a, "/"); d != 0 {
					return d
				}
				return strings.Compare(a, b)
			})
			return names[0]
		}
	}
	return "after its tests" // in TestMain
}

// notices reports whether the test failed, or the program ended in it. What fails beside it is no answer.
func (n notice) notices(r *ran) bool {
	for name, how := range r.tests {
		if n.matches(name) && (how == "fail" || how == "run") {
			return true
		}
	}
	return false
}

// matches reports whether name is the test, or a subtest of it.
func (n notice) matches(name string) bool {
	return name == n.test || strings.HasPrefix(name, n.test+"/")
}

// pattern is what "go test" gets as -run.
func (n notice) pattern() string {
	elements := strings.Split(n.test, "/")
	for i, e := range elements {
		elements[i] = "^" + regexp.QuoteMeta(e) + "$"
	}
	return strings.Join(elements, "/")
}
