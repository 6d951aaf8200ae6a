package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// patience bounds every wait for a worker.
const patience = 60 * time.Second

// worker is a process that locks and writes as it is told to.
type worker struct {
	Name string
	Net  conformance.Network // between it and the store; nil if there is none

	play *play
	cmd  *exec.Cmd
	out  *lines // to the process

	mu      sync.Mutex
	last    int // the ID of an order
	waiting map[int]chan report
	lost    map[fencing.Token]chan struct{}
	delay   *delay // of its next write
	gone    chan struct{}
}

// start starts a process and waits until it has its Locker.
func (p *play) start(ctx context.Context, name string) (*worker, error) {
	url, net, err := p.System.Client()
	if err != nil {
		return nil, err
	}
	return p.startAt(ctx, name, url, net)
}

var errEndedAtOnce = errors.New("ended at once")

// startAt is start for a store at url.
func (p *play) startAt(ctx context.Context, name, url string, net conformance.Network) (*worker, error) {
	if p.reached != nil {
		if err := p.reached(); err != nil {
			return nil, err
		}
	}
	w := &worker{
		Name: name, Net: net, play: p,
		waiting: make(map[int]chan report), lost: make(map[fencing.Token]chan struct{}), gone: make(chan struct{}),
	}
	ready := make(chan report, 1)
	w.waiting[0] = ready
	var said tail
	if err := w.launch(url, &said); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.workers = append(p.workers, w)
	p.mu.Unlock()
	select {
	case <-ready:
		return w, nil
	case <-w.gone:
		return nil, fmt.Errorf("worker %s %w: %s", name, errEndedAtOnce, said.String())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// launch starts the process and reads its reports from then on.
func (w *worker) launch(url string, stderr io.Writer) (err error) {
	if w.cmd, err = workerCommand(url); err != nil {
		return err
	}
	stdin, err := w.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	w.cmd.Stderr = stderr
	if err := w.play.lab.Start(w.cmd); err != nil {
		return err
	}
	w.out = newLines(stdin)
	go w.listen(stdout)
	return nil
}

// Suspend stops the process, as a suspended machine does.
func (w *worker) Suspend() error {
	w.play.History.Fault("%s is stopped", w.Name)
	if err := pauseProcess(w.cmd.Process); err != nil {
		return err
	}
	if err := w.awaitSuspended(); err != nil {
		return err
	}
	w.play.History.Paused(w.Name, false)
	return nil
}

// Wake lets a suspended process go on.
func (w *worker) Wake() error {
	w.play.History.Mark("%s goes on", w.Name)
	w.play.History.Woke(w.Name)
	return resumeProcess(w.cmd.Process)
}

// Kill ends the process as kill -9 does.
func (w *worker) Kill() error {
	w.play.History.Fault("%s is killed", w.Name)
	// The signal ends the belief. The store may hear of the death, and give the
	// lock away, long before we do.
	at := driver.Now()
	w.end()
	w.play.History.Killed(w.Name, at)
	return nil
}

func (w *worker) end() {
	_ = w.cmd.Process.Kill() // it may be gone already
	<-w.gone
}

// tail keeps the last output of a process.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-2000):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
