// Package testserver starts real servers as child processes, on free loopback ports,
// with their data in a folder that goes with the test. They end with the test, also
// when the test process is killed.
//
// It does not import testing, so that a command can use it too.
package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// TB is what servers need of a test. A *testing.T is one.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// patience bounds every wait for a server. It is generous, because machines are slow;
// where all goes well, the wait ends with an event long before.
const patience = 60 * time.Second

// missing skips a test whose server is not installed, or fails it where the
// environment says that nothing may be skipped.
func missing(t TB, what, install string) {
	t.Helper()
	if os.Getenv("LOCKER_TEST_REQUIRE") == "1" {
		t.Fatalf("%s is not installed: %s (make test does it)", what, install)
	}
	t.Skipf("%s is not installed: %s", what, install)
}

// process is a server that runs, or ran.
type process struct {
	cmd  *exec.Cmd
	log  *tail
	gone chan struct{} // closed when it has ended and was waited for
}

// local is the address of a port of this machine.
func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// start starts a child that ends with this process.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, log: new(tail), gone: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	dieWithParent(cmd)
	if err := onSpawner(cmd.Start); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // how it ended does not matter: it is killed in the end
		close(p.gone)
	}()
	return p, nil
}

// spawner runs functions on one thread that never ends. The kernel kills a
// child with a death signal when the thread that started it ends, not the
// process.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func onSpawner(f func() error) error {
	result := make(chan error)
	spawner() <- func() { result <- f() }
	return <-result
}

// kill ends the process and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.gone
}

// single is a server of one process, which what embeds it starts.
type single struct {
	t       TB
	binary  string
	process *process
}

// Kill ends the server as kill -9 does, and waits until it is gone.
func (s *single) Kill() { s.process.kill() }

// Pause stops the process, and returns when it stands still: connections stay open, nothing is answered.
func (s *single) Pause() {
	s.t.Helper()
	if err := s.process.pause(); err != nil {
		s.t.Fatalf("pausing %s: %v", s.binary, err)
	}
}

// Resume ends a Pause.
func (s *single) Resume() {
	s.t.Helper()
	if err := s.process.resume(); err != nil {
		s.t.Fatalf("resuming %s: %v", s.binary, err)
	}
}

// end kills a server that may never have started.
func (s *single) end() {
	if s.process != nil {
		s.process.kill()
	}
}

// await calls ready until it reports nil, the process ends, or patience does.
func (p *process) await(ready func() error) error {
	deadline := time.Now().Add(patience)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.gone:
			return fmt.Errorf("it ended at once and said:\n%s", p.log)
		case <-time.After(pause):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it is not ready after %v: %w; it said:\n%s", patience, err, p.log)
		}
	}
}

// tail keeps the end of what a server says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if extra := len(t.text) - tailSize; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// StartChild starts a process that ends with this one, where the system knows
// how. The caller waits for it.
func StartChild(cmd *exec.Cmd) error {
	dieWithParent(cmd)
	return onSpawner(cmd.Start)
}
