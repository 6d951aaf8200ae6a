package docs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/lab/testserver"
)

// patience bounds every wait. It is generous: what waits here waits for an event, and
// the machine may be busy.
const patience = 90 * time.Second

// process is a program that runs, or ran, with what it said.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *text
	gone chan struct{} // closed when it has ended and was waited for
}

// start starts a program of the page.
func start(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	return launch(t, env, exec.Command(filepath.Join(bin(t), name), args...))
}

// launch starts a command that finds the programs of the page first. It ends with the test.
func launch(t *testing.T, env []string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, said: new(text), gone: make(chan struct{})}
	cmd.Env = append([]string{
		"HOME=" + os.Getenv("HOME"), "PATH=" + bin(t) + ":" + os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0", // else the race detector makes every program last a second longer
	}, env...)
	cmd.Stdout, cmd.Stderr = p.said, p.said
	cmd.WaitDelay = patience // what it leaves behind may have its output open
	if err := testserver.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // what it says is in the state
		close(p.gone)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has mostly ended
		<-p.gone
	})
	return p
}

// says waits until the program has said what is wanted.
func (p *process) says(want string) { p.t.Helper(); p.saysTimes(want, 1) }

// saysTimes waits until the program has said it so many times.
func (p *process) saysTimes(want string, times int) {
	p.t.Helper()
	p.wait(fmt.Sprintf("it says %q %d times", want, times), func() bool { return p.count(want) >= times })
}

// wait waits until ok is true, and fails where it cannot become true any more.
func (p *process) wait(what string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.gone:
			if ok() {
				return
			}
			p.t.Fatalf("%v has ended (%v) before %s:\n%s", p.cmd.Args, p.cmd.ProcessState, what, p.said)
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%v: gave up waiting until %s:\n%s", p.cmd.Args, what, p.said)
		}
	}
}

func (p *process) count(want string) int { return strings.Count(p.said.String(), want) }

// ends waits until the program has ended, and checks its exit status.
func (p *process) ends(status int) {
	p.t.Helper()
	select {
	case <-p.gone:
	case <-time.After(patience):
		p.t.Fatalf("%v does not end; it said:\n%s", p.cmd.Args, p.said)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != status {
		p.t.Errorf("%v: %v, want exit status %d; it said:\n%s", p.cmd.Args, p.cmd.ProcessState, status, p.said)
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// pause stops the program, and returns when it stands still.
func (p *process) pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	p.wait("it stands still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		_, state, found := strings.Cut(string(stat), ") ")
		return err == nil && found && strings.HasPrefix(state, "T")
	})
}

// text is what was written so far.
type text struct {
	mu sync.Mutex
	b  []byte
}

func (x *text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.b = append(x.b, b...)
	return len(b), nil
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return string(x.b)
}

// script writes a shell script that stands for a program of the reader's.
func script(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// installed returns a folder that has the command locker, as /usr/local/bin has on the page.
func installed(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := errors.Join(os.Chmod(folder, 0o755), os.Symlink(filepath.Join(bin(t), "locker"), filepath.Join(folder, "locker"))); err != nil {
		t.Fatal(err)
	}
	return folder
}
