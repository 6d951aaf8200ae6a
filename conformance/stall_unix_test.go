//go:build unix

package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
)

// ownTicker starts a ticker beside that of this process.
func ownTicker(t *testing.T) (*ticker, *meter) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{left: replays}
	tick, err := startTicker(self, m)
	if err != nil {
		t.Fatal(err)
	}
	m.ask = tick.ask
	t.Cleanup(func() { _ = tick.asks.Close() }) // it ends with this
	return tick, m
}

// pause stops a ticker for a while, as a machine does that stands still.
func pause(t *testing.T, tick *ticker, d time.Duration) {
	t.Helper()
	signal := func(sig syscall.Signal) {
		if err := tick.cmd.Process.Signal(sig); err != nil {
			t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	if err := testserver.AwaitStopped(tick.cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	time.Sleep(d)
	signal(syscall.SIGCONT)
}

func TestTickerNotesARealStall(t *testing.T) {
	tick, m := ownTicker(t)
	const d = 500 * time.Millisecond
	from := time.Now()
	pause(t, tick, d)
	to := time.Now()
	if stood := m.excuse(from, to); stood < d-2*tickPause-tickFloor || stood > to.Sub(from) {
		t.Errorf("of %v the machine stood still for %v, want about %v", to.Sub(from), stood, d)
	}
	if stood := m.excuse(from.Add(-time.Hour), from); stood > 100*time.Millisecond {
		t.Errorf("before that it had stood still for %v", stood)
	}
}

// Method: the ticker stands still while the clause waits for something that comes late. The
// ticker has not said so yet when the clause gives up: it must be asked.
func TestMissWithinARealStallIsPlayedAgain(t *testing.T) {
	var out bytes.Buffer
	stderr = &out
	defer func() { stderr = os.Stderr }()
	tick, m := ownTicker(t)
	plays := 0
	c := Clause{"a-clause", "It matters.", func(x *trial) {
		if plays++; plays > 1 {
			return
		}
		done := make(chan struct{})
		time.AfterFunc(x.h.patience+100*time.Millisecond, func() { close(done) })
		go pause(t, tick, x.h.patience+500*time.Millisecond)
		x.event(done, "it comes")
	}}
	h := Harness{New: func(testing.TB) Process { return Process{} }, meter: m, patience: time.Second}
	if err := c.verify(t, h); err != nil || plays != 2 || !strings.HasPrefix(out.String(), "stalled: ") {
		t.Errorf("it was played %d times, said %q and returned %v", plays, out.String(), err)
	}
}

// A meter whose ticker has been killed knows of no more stalls, and nobody waits for it.
func TestMeterWithoutItsTickerExcusesNothing(t *testing.T) {
	tick, m := ownTicker(t)
	if err := tick.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if stood := m.excuse(begun.Add(-time.Hour), begun); stood > time.Second || time.Since(begun) > tickerPatience/2 {
		t.Errorf("it excuses %v, after %v", stood, time.Since(begun))
	}
}

// Goal: no ticker outlives its process, however that ends. Method: this test again, as a
// process of its own, which is killed. It and its ticker have an end of a pipe, which both
// must leave.
func TestTickerEndsWithAProcessThatIsKilled(t *testing.T) {
	const child = "CONFORMANCE_TICKS"
	if os.Getenv(child) != "" {
		ownTicker(t)
		fmt.Println("it ticks")
		time.Sleep(time.Hour) // until it is killed
	}
	left, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.ExtraFiles = []*os.File{held}
	p := process.Start(t, cmd)
	held.Close()
	p.Says("it ticks")
	p.Signal(syscall.SIGKILL)
	p.Ends(-1)
	if err := left.SetReadDeadline(time.Now().Add(process.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := left.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the ticker is still there: %v", err)
	}
}
