package matrix

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// patience bounds every wait for a worker.
const patience = 60 * time.Second

// Worker is a process that locks and writes.
type Worker struct {
	Name string
	Net  Network // between it and the store; nil if there is none

	play  *Play
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *lines

	mu      sync.Mutex
	last    int
	waiting map[int]chan report
	lost    map[fencing.Token]chan struct{}
	delay   *delay // of its next write
	gone    chan struct{}
}

// start starts a process and waits until it has its Locker.
func (p *Play) start(ctx context.Context, name string) (*Worker, error) {
	url, net, err := p.System.Client()
	if err != nil {
		return nil, err
	}
	return p.startAt(ctx, name, url, net)
}

// startAt is start with a store that is found at url.
func (p *Play) startAt(ctx context.Context, name, url string, net Network) (_ *Worker, err error) {
	w := &Worker{
		Name: name, Net: net, play: p,
		waiting: make(map[int]chan report), lost: make(map[fencing.Token]chan struct{}), gone: make(chan struct{}),
	}
	ready := make(chan report, 1)
	w.waiting[0] = ready
	w.cmd = p.lab.command(url)
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var said tail
	w.cmd.Stderr = &said
	if err := p.lab.Start(w.cmd); err != nil {
		return nil, err
	}
	w.out = newLines(w.stdin)
	go w.listen(stdout)
	p.mu.Lock()
	p.crew = append(p.crew, w)
	p.mu.Unlock()
	select {
	case <-ready:
		return w, nil
	case <-w.gone:
		return nil, fmt.Errorf("worker %s ended at once: %s", name, said.String())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// listen takes what the worker says, in the order in which it says it.
func (w *Worker) listen(stdout io.Reader) {
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		var r report
		if json.Unmarshal(scanner.Bytes(), &r) == nil {
			w.hear(r)
		}
	}
	_ = w.cmd.Wait() // it was killed, or its input ended
	close(w.gone)
}

func (w *Worker) hear(r report) {
	h := w.play.History
	token := fencing.Token(r.Token)
	switch r.Kind {
	case kindGranted:
		h.granted(Span{Worker: w.Name, Name: r.Name, Token: token, Asked: r.Asked, From: r.At})
	case kindLost:
		w.robbed(r)
		h.ended(w.Name, token, believed(r), r.Err)
		w.mu.Lock()
		w.tellLoss(token)
		w.mu.Unlock()
		return
	case kindWrite:
		w.onTheWay()
		h.write(Write{Worker: w.Name, Name: r.Name, Token: token, Value: r.Value, At: locker.Now()})
		return
	}
	if r.Kind == kindFreed {
		w.robbed(r)
	}
	w.mu.Lock()
	ch := w.waiting[r.ID]
	delete(w.waiting, r.ID)
	w.mu.Unlock()
	if ch != nil {
		ch <- r
	}
}

// robbed notes a lock that the store no longer had under a holder whose validity
// had not ended: somebody has taken it away.
func (w *Worker) robbed(r report) {
	if r.Reason == locker.TakenOver && r.At < r.Deadline {
		w.play.History.rob(w.Name, fencing.Token(r.Token))
	}
}

// delay is a write on a slow way.
type delay struct{ sent, delivered chan struct{} }

// onTheWay is the way of a write from the worker to the storage.
func (w *Worker) onTheWay() {
	w.mu.Lock()
	d := w.delay
	w.delay = nil
	w.mu.Unlock()
	if d == nil {
		return
	}
	close(d.sent)
	select {
	case <-d.delivered:
	case <-w.play.ctx.Done():
	}
}

// believed is when a lost lock's holder ceased to believe: when it was told, or
// earlier, when its validity ended. A stopped process is told when it wakes, but
// its first look at the lock shows the loss whoever has told it what.
func believed(r report) locker.Instant {
	if r.Deadline == 0 {
		return r.At
	}
	return min(r.At, r.Deadline)
}

// lossOf is closed when the worker has been told of the loss.
func (w *Worker) lossOf(token fencing.Token) chan struct{} {
	if w.lost[token] == nil {
		w.lost[token] = make(chan struct{})
	}
	return w.lost[token]
}

// tellLoss is for a token that may come twice: that is a finding, not a crash.
func (w *Worker) tellLoss(token fencing.Token) {
	lost := w.lossOf(token)
	select {
	case <-lost:
	default:
		close(lost)
	}
}

// tell gives an order. The answer comes on the channel.
func (w *Worker) tell(o order) <-chan report {
	ch := make(chan report, 1)
	w.mu.Lock()
	w.last++
	o.ID = w.last
	w.waiting[o.ID] = ch
	w.mu.Unlock()
	_ = w.out.send(o) // if it is gone, the wait says so
	return ch
}

var errGone = errors.New("the worker process has ended")

func (w *Worker) answer(ctx context.Context, ch <-chan report) (report, error) {
	const enough = patience + patience/4 // a Lock may answer when patience ends
	timer := time.NewTimer(enough)
	defer timer.Stop()
	select {
	case r := <-ch:
		return r, nil
	case <-w.gone:
		return report{}, fmt.Errorf("worker %s: %w", w.Name, errGone)
	case <-timer.C:
		return report{}, fmt.Errorf("worker %s has not answered for %v", w.Name, enough)
	case <-ctx.Done():
		return report{}, context.Cause(ctx)
	}
}

// Suspend stops the process, as a suspended machine does.
func (w *Worker) Suspend() error {
	w.play.History.fault("%s is stopped", w.Name)
	if err := pauseProcess(w.cmd.Process); err != nil {
		return err
	}
	if err := w.awaitSuspended(); err != nil {
		return err
	}
	w.play.History.leave(w.Name)
	return nil
}

// Wake lets it go on.
func (w *Worker) Wake() error {
	w.play.History.mark("%s goes on", w.Name)
	w.play.History.back(w.Name)
	return resumeProcess(w.cmd.Process)
}

// Kill ends the process as kill -9 does.
func (w *Worker) Kill() error {
	w.play.History.fault("%s is killed", w.Name)
	// The signal ends the belief. Long before we hear that the process is gone,
	// the store may have, and given the lock away.
	at := locker.Now()
	w.end()
	h := w.play.History
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Spans {
		if s := &h.Spans[i]; s.Worker == w.Name && s.Until == 0 {
			s.Until, s.End = at, "its process was killed"
		}
	}
	return nil
}

func (w *Worker) end() {
	_ = w.cmd.Process.Kill() // it may be gone already
	<-w.gone
}

// tail keeps the last words of a process.
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
	return string(t.text)
}
