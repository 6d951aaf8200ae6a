// Package process runs programs beside a test: the test starts them, reads what they say,
// sends them signals, and waits for how they end. A program ends with the test that has
// started it, on Linux also when the test process is killed.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// Patience bounds every wait. It is generous: what waits here waits for an event, and
// the machine may be busy.
const Patience = 90 * time.Second

// TB is what programs need of a test. A *testing.T is one.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Process is a program that runs, or ran, with what it said.
type Process struct {
	Cmd  *exec.Cmd
	t    TB
	said text
	gone chan struct{} // closed when it has ended and was waited for
}

// Again starts the test binary itself once more, with this environment besides the test's
// own. TestMain finds a variable there and is another program.
func Again(t TB, env ...string) *Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	return Start(t, cmd)
}

// Start starts a command, and reads its standard output and its standard error.
func Start(t TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, t: t, gone: make(chan struct{})}
	cmd.Env = append(cmd.Environ(), "GORACE=atexit_sleep_ms=0") // else the race detector makes every program last a second longer
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	cmd.WaitDelay = Patience // what it leaves behind may have its output open
	if err := testserver.StartChild(cmd); err != nil {
		t.Fatalf("%v", err)
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

// Said returns what the program has said so far.
func (p *Process) Said() string { return p.said.String() }

// Count returns how often the program has said text so far.
func (p *Process) Count(text string) int { return strings.Count(p.Said(), text) }

// Says waits until the program has said text.
func (p *Process) Says(text string) { p.t.Helper(); p.SaysTimes(text, 1) }

// SaysTimes waits until the program has said text so many times.
func (p *Process) SaysTimes(text string, times int) {
	p.t.Helper()
	p.Wait(fmt.Sprintf("it says %q %d times", text, times), func() bool { return p.Count(text) >= times })
}

// Wait waits until ok is true. It fails the test where the program has ended and ok cannot
// become true any more.
func (p *Process) Wait(what string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.gone:
			if ok() {
				return
			}
			p.t.Fatalf("%v has ended (%v) before %s:\n%s", p.Cmd.Args, p.Cmd.ProcessState, what, p.Said())
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%v: gave up waiting until %s:\n%s", p.Cmd.Args, what, p.Said())
		}
	}
}

// Ends waits until the program has ended, and checks its exit status. After a signal that
// is -1.
func (p *Process) Ends(status int) {
	p.t.Helper()
	select {
	case <-p.gone:
	case <-time.After(Patience):
		p.t.Fatalf("%v does not end; it said:\n%s", p.Cmd.Args, p.Said())
	}
	if got := p.Cmd.ProcessState.ExitCode(); got != status {
		p.t.Errorf("%v: %v, want exit status %d; it said:\n%s", p.Cmd.Args, p.Cmd.ProcessState, status, p.Said())
	}
}

// Signal sends the program a signal.
func (p *Process) Signal(sig os.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%v: %v", p.Cmd.Args, err)
	}
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
