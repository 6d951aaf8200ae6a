//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// patience bounds every wait. It is generous: what waits here waits for an
// event, and the machine may be busy. "make mutants" gives a test three minutes.
const patience = 2 * time.Minute

// secret is the password of every URL in these tests. No output may show it.
const secret = "sesame"

// The test binary is also the command that is tested.
func TestMain(m *testing.M) {
	if os.Getenv("LOCKER_TEST_IS_COMMAND") == "1" {
		main()
	}
	logging.Disable() // as main does
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(sig) { // by nohup, or a script that runs the tests beside others; the commands must not inherit that
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}

// backendOf is what -b URL stands for.
func backendOf(url string) *backend {
	b := new(backend)
	_ = b.flag()
	b.named = url
	return b
}

// process is a command that runs, or ran, with what it said.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *stream
	errs   *stream
	status chan int
}

// launch starts the command. What it starts in turn is ended with the test.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return launchWith(t, nil, args...)
}

// launchWith is launch with more environment.
func launchWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return spawn(t, env, exec.Command(os.Args[0], args...))
}

// spawn starts cmd in an environment in which the test binary is the command.
func spawn(t *testing.T, env []string, cmd *exec.Cmd) *process {
	t.Helper()
	mark := "LOCKER_TEST_MARK=" + t.Name() + "@" + strconv.Itoa(os.Getpid())
	cmd.Env = append(ofTests(os.Environ()), "LOCKER_TEST_IS_COMMAND=1", mark,
		"GORACE=atexit_sleep_ms=0") // else the race detector makes every command last a second longer
	cmd.Env = append(cmd.Env, env...)
	child, in, err := os.Pipe() // not cmd's own, which is closed when the command ends: its child may live
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = child
	t.Cleanup(func() { _ = in.Close() })
	p := &process{t: t, cmd: cmd, in: in, out: newStream(t), errs: newStream(t), status: make(chan int, 1)}
	cmd.Stdout, cmd.Stderr = p.out.w, p.errs.w
	p.start(mark)
	_ = child.Close() // the command has it
	return p
}

// ofTests keeps out what whoever runs the tests has in the environment for a locker, such as
// LOCKER_BACKEND, or for something else that begins with its name.
func ofTests(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, "LOCKER_") || strings.HasPrefix(e, "LOCKER_TEST_") {
			kept = append(kept, e)
		}
	}
	return kept
}

func (p *process) start(mark string) {
	p.t.Helper()
	err := p.cmd.Start()
	p.out.closeWriter()
	p.errs.closeWriter()
	if err != nil {
		p.t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // what it says is in the state
		state, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case !ok:
			p.status <- -1
		case state.Signaled():
			p.status <- -int(state.Signal())
		default:
			p.status <- state.ExitStatus()
		}
		close(gone)
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has mostly ended
		<-gone
		select {
		case <-p.out.end:
		default: // somebody has stdout open
			killMarked(mark)
		}
	})
}

// ends waits until the command has ended, and every process that has its stdout or
// stderr open: its child and their children. It checks the exit status; a signal
// counts as negative. Nothing may show the secret, and on stderr nobody but
// locker may speak: its children in these tests do not.
func (p *process) ends(want int) {
	p.t.Helper()
	p.finishes(want)
	p.out.ends()
	p.errs.ends()
	all := p.out.String() + p.errs.String()
	if strings.Contains(all, secret) {
		p.t.Errorf("%v shows the secret:\n%s", p.cmd.Args[1:], all)
	}
	for line := range strings.Lines(p.errs.String()) {
		if text, ours := strings.CutPrefix(line, "locker: "); !ours || strings.HasPrefix(text, "locker: ") || strings.Contains(line, "panic") {
			p.t.Errorf("%v: this is not a message of the command: %s", p.cmd.Args[1:], line)
		}
	}
}

// finishes is ends for a command about whose messages the test does not care.
func (p *process) finishes(want int) {
	p.t.Helper()
	select {
	case got := <-p.status:
		p.status <- got
		if got != want {
			p.t.Errorf("%v: status %d, want %d; it said:\n%s%s", p.cmd.Args[1:], got, want, p.out, p.errs)
		}
	case <-time.After(patience):
		p.t.Fatalf("%v does not end; it said:\n%s%s", p.cmd.Args[1:], p.out, p.errs)
	}
}

// complains checks that the command ended with a message that has all of wants.
func (p *process) complains(status int, wants ...string) {
	p.t.Helper()
	p.ends(status)
	for _, want := range wants {
		if !strings.Contains(p.errs.String(), want) {
			p.t.Errorf("%v: %q is not in: %s", p.cmd.Args[1:], want, p.errs)
		}
	}
}

// says waits until the command, or what it runs, has said text on stdout.
func (p *process) says(text string) {
	p.t.Helper()
	if !p.out.await(func(s string) bool { return strings.Contains(s, text) }) {
		p.t.Fatalf("%v does not say %q but:\n%s%s", p.cmd.Args[1:], text, p.out, p.errs)
	}
}

// word waits for a line on stdout that begins with key and returns its rest.
func (p *process) word(key string) string {
	p.t.Helper()
	var rest string
	found := p.out.await(func(s string) bool {
		for line := range strings.Lines(s) {
			after, ok := strings.CutPrefix(line, key+" ")
			if ok && strings.HasSuffix(after, "\n") {
				rest = strings.TrimSpace(after)
				return true
			}
		}
		return false
	})
	if !found {
		p.t.Fatalf("%v does not tell its %q but:\n%s%s", p.cmd.Args[1:], key, p.out, p.errs)
	}
	return rest
}

// number is word for numbers.
func (p *process) number(key string) uint64 {
	p.t.Helper()
	n, err := strconv.ParseUint(p.word(key), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// goOn ends the wait of a child that reads from stdin.
func (p *process) goOn() {
	p.t.Helper()
	if err := p.in.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// followsAndEnds is for a command that reports: it has a later token than the
// holder before it, and ends well when it is told to go on.
func (p *process) followsAndEnds(earlier uint64) {
	p.t.Helper()
	if token := p.number("token"); token <= earlier {
		p.t.Errorf("%v: token %d after %d", p.cmd.Args[1:], token, earlier)
	}
	p.goOn()
	p.ends(0)
}

// stream is what was written to a pipe so far.
type stream struct {
	t    *testing.T
	w    *os.File
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{} // closed, and replaced, when there is more
	end  chan struct{} // closed when nobody can write any more
}

func newStream(t *testing.T) *stream {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t: t, w: w, news: make(chan struct{}), end: make(chan struct{})}
	go func() {
		_, _ = io.Copy(s, r) // ends with the last writer
		_ = r.Close()
		close(s.end)
	}()
	return s
}

func (s *stream) closeWriter() { _ = s.w.Close() }

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	close(s.news)
	s.news = make(chan struct{})
	return len(b), nil
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await returns true as soon as ok is true of the text, false if it cannot
// become true any more.
func (s *stream) await(ok func(string) bool) bool {
	timeout := time.After(patience)
	for {
		s.mu.Lock()
		text, news := s.text.String(), s.news
		s.mu.Unlock()
		if ok(text) {
			return true
		}
		select {
		case <-news:
		case <-s.end:
			return ok(s.String())
		case <-timeout:
			return false
		}
	}
}

func (s *stream) ends() {
	s.t.Helper()
	select {
	case <-s.end:
	case <-time.After(patience):
		s.t.Fatalf("somebody is left who can write, after:\n%s", s)
	}
}

// waitFor waits for what comes with no event.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}
