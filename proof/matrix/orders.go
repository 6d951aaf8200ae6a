package matrix

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// tell gives the worker an order. The answer comes on the channel.
func (w *worker) tell(o order) <-chan report {
	ch := make(chan report, 1)
	w.mu.Lock()
	w.last++
	o.ID = w.last
	w.waiting[o.ID] = ch
	w.mu.Unlock()
	_ = w.out.send(o) // if the process is gone, answer says so
	return ch
}

var errGone = errors.New("the worker process has ended")

// answer waits for the answer to an order.
func (w *worker) answer(ctx context.Context, ch <-chan report) (report, error) {
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

// listen takes the worker's reports, in the order in which it sends them.
func (w *worker) listen(stdout io.Reader) {
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

func (w *worker) hear(r report) {
	h := w.play.History
	token := fencing.Token(r.Token)
	switch r.Kind {
	case kindGranted:
		h.Granted(history.Span{Worker: w.Name, Name: r.Name, Token: token, Shared: r.Shared, NoRenew: r.NoRenew, Asked: r.Asked, From: r.At, ID: r.Lock})
	case kindLost:
		w.noteTakenAway(r)
		h.Lost(w.Name, r.Lock, believedUntil(r), r.Err)
		w.noteLoss(token)
		return
	case kindWrite:
		w.awaitDelivery()
		h.Put(history.Write{Worker: w.Name, Name: r.Name, Token: token, Shared: r.Shared, Value: r.Value, Adds: r.Sets != nil, Looked: r.At, At: driver.Now()}, r.Sets)
		return
	case kindFreed:
		w.noteTakenAway(r)
	case kindDetached:
		if r.Handle != "" {
			h.Ceased(w.Name, r.Lock, believedUntil(r), "it was detached")
		}
	}
	w.mu.Lock()
	ch := w.waiting[r.ID]
	delete(w.waiting, r.ID)
	w.mu.Unlock()
	if ch != nil {
		ch <- r
	}
}

// noteTakenAway notes a lock that the store no longer had though the holder's
// validity had not ended: somebody has taken it away.
func (w *worker) noteTakenAway(r report) {
	if r.Reason == locker.ReasonTakenOver && r.At < r.Deadline {
		w.play.History.TakenAway(w.Name, r.Lock)
	}
}

// believedUntil is when the holder of a lost lock stopped believing: when it heard of
// the loss or, if that was earlier, at its deadline. A stopped process hears of the
// loss when it wakes, but after the deadline its first look at the lock shows the loss
// anyhow.
func believedUntil(r report) driver.Instant {
	if r.Deadline == 0 {
		return r.At
	}
	return min(r.At, r.Deadline)
}

// lossOf returns a channel that is closed when the worker has heard of the loss.
func (w *worker) lossOf(token fencing.Token) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost[token] == nil {
		w.lost[token] = make(chan struct{})
	}
	return w.lost[token]
}

// noteLoss closes lossOf. It may be called twice for a token: that a token came twice
// is a finding, not a crash.
func (w *worker) noteLoss(token fencing.Token) {
	lost := w.lossOf(token)
	select {
	case <-lost:
	default:
		close(lost) // only the goroutine that listens does this
	}
}

// delay holds back a write between the worker and the storage.
type delay struct{ sent, delivered chan struct{} }

// awaitDelivery returns when the write that the worker has just sent reaches the
// storage.
func (w *worker) awaitDelivery() {
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
