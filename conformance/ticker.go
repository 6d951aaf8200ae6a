package conformance

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// tickerVariable is set in the environment of the process that is the ticker.
const tickerVariable = "LOCKER_CONFORMANCE_TICKER"

const (
	tickPause = 20 * time.Millisecond // between two looks at the clock: a process that looks more often is a load itself
	tickFloor = 5 * time.Millisecond  // so late is a sleep anywhere, and that counts as nothing
)

// init makes the ticker of a process that startTicker has started, and does nothing in any
// other. There is no other way in: the program is a test of somebody else's, whose main
// function is not ours. The process ends before any test begins, and after what packages that
// come before this one do when they are initialised.
func init() {
	if os.Getenv(tickerVariable) == "" {
		return
	}
	tick(os.Stdin, os.Stdout)
	os.Exit(1) // so that a test with the variable in its environment, which tests nothing, does not pass
}

// tick sleeps again and again, and says each time that a sleep was late: when it should have
// ended, by the wall clock, which all processes share, and how late it was, by this process'
// monotonic clock, which no step of the wall clock moves. Whoever writes a line to it is told
// with the next tick until when everything has been said. It ends when asked ends: with the
// process that has started it, however that ends.
func tick(asked io.Reader, says io.Writer) {
	questions := make(chan string)
	go func() {
		defer close(questions)
		for lines := bufio.NewScanner(asked); lines.Scan(); {
			questions <- lines.Text()
		}
	}()
	unanswered := false
	last := time.Now() // before it says that it notes everything
	fmt.Fprintln(says, "begins")
	for {
		time.Sleep(tickPause)
		now := time.Now()
		if late := now.Sub(last) - tickPause - tickFloor; late > 0 {
			fmt.Fprintln(says, "late", last.Add(tickPause).UnixNano(), late.Nanoseconds())
		}
		last = now
		if unanswered {
			fmt.Fprintln(says, "upto", now.UnixNano(), 0)
			unanswered = false
		}
		select {
		case _, ok := <-questions:
			if !ok {
				return
			}
			unanswered = true // with the next look: this one may have been before the question
		default:
		}
	}
}

// ticker is the process that notes for how long the machine stands still. A goroutine would
// also note what this process does to itself, and would miss what it sleeps through.
type ticker struct {
	cmd   *exec.Cmd
	asks  io.WriteCloser
	says  *bufio.Scanner
	meter *meter
}

// startTicker starts the test binary once more, as a ticker. What it says is noted in m.
func startTicker(self string, m *meter) (*ticker, error) {
	cmd := exec.Command(self)
	cmd.Env = append(cmd.Environ(), tickerVariable+"=1", "GORACE=atexit_sleep_ms=0")
	asks, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	says, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &ticker{cmd, asks, bufio.NewScanner(says), m}
	hangs := time.AfterFunc(tickerPatience, func() { _ = cmd.Process.Kill() }) // what other packages do before may hang
	if !t.says.Scan() || t.says.Text() != "begins" {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("it said %q and ended: %v", t.says.Text(), cmd.Wait()) //nolint:errorlint // for people
	}
	hangs.Stop()
	go t.listen()
	return t, nil
}

// listen notes what the ticker says, until it ends.
func (t *ticker) listen() {
	for t.says.Scan() {
		var word string
		var at, length int64
		if _, err := fmt.Sscan(t.says.Text(), &word, &at, &length); err != nil {
			break
		}
		t.meter.note(stall{time.Unix(0, at), time.Duration(length)}, word == "upto")
	}
	t.meter.end()
	_ = t.cmd.Wait() // it has ended: nobody can do anything about it
}

// ask has the ticker say until when it has said everything.
func (t *ticker) ask() { _, _ = io.WriteString(t.asks, "until when?\n") }

// noReplay is set where nothing is played again, such as where lines are broken on purpose.
const noReplay = "LOCKER_TEST_NO_REPLAY"

// mine is the meter of this process. All suites of the process share it, with its budget.
var mine = sync.OnceValue(func() *meter {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return newMeter(self)
})

// newMeter starts a ticker, and measures how slow the machine is.
func newMeter(self string) *meter {
	m := &meter{factor: 1, off: os.Getenv(noReplay) != "", left: replays}
	begun := time.Now()
	t, err := startTicker(self, m)
	if err != nil {
		aloud(fmt.Sprintf("conformance: no process of %s notes when the machine stands still, so no clause is played again: %v", program(), err))
		return m
	}
	m.ask = t.ask
	started := time.Now()
	time.Sleep(200 * time.Millisecond)
	slow := started.Sub(begun) + m.sum(started, time.Now())
	if m.factor = factorOf(slow); m.factor > 1 {
		aloud(fmt.Sprintf("conformance: the machine is slow (%v late to start a process and within 200ms after it), so leases of %s last up to %d times as long", round(slow), program(), m.factor))
	}
	return m
}

// factorOf is by how much leases are longer where it takes so long to start a process. On an
// idle machine that takes some hundredths of a second.
func factorOf(slow time.Duration) int {
	switch {
	case slow < 500*time.Millisecond:
		return 1
	case slow < 1500*time.Millisecond:
		return 2
	}
	return 4
}

// program is the name of this test, mostly that of its package.
func program() string { return strings.TrimSuffix(filepath.Base(os.Args[0]), ".test") }

// aloud says what must be seen though every test passes. Without -v the log of such a test
// is not shown.
func aloud(text string) {
	speaking.Lock()
	defer speaking.Unlock()
	fmt.Fprintln(stderr, text)
}

var (
	speaking sync.Mutex
	stderr   io.Writer = os.Stderr // a variable for tests
)
