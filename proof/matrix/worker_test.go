package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

const second = driver.Instant(time.Second)

// Goal: a store that frees the lock as soon as a holder is dead makes no false claim, also
// if it does so before this process has heard of the death.
func TestAKilledHolderBelievesNothingFromTheSignalOn(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	h := &history.History{}
	w := &worker{Name: "A", play: &play{History: h}, cmd: cmd, gone: make(chan struct{})}
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, From: 1})
	go func() {
		_ = cmd.Wait()
		h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, From: driver.Now(), Until: driver.Now() + second})
		close(w.gone)
	}()
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := judge.Find(locker.Guarantees{}, 0, h).Overlap; got > 0 {
		t.Errorf("two holders for %v, one of them dead", got)
	}
}

// A token that comes twice is what the matrix is to report.
func TestTheSameTokenCanBeLostTwice(t *testing.T) {
	w := &worker{Name: "A", play: &play{History: &history.History{}}, lost: make(map[fencing.Token]chan struct{})}
	for range 2 {
		w.hear(report{Kind: kindLost, Token: 7})
	}
}

func TestALossIsReportedAfterItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		w := &workerProcess{out: newLines(&told), held: make(map[int]numbered), peer: shortLived{}}
		var r report
		w.lock(t.Context(), order{Name: "n"}, w.peer.Lock, &r)
		synctest.Wait()
		if told.Len() > 0 {
			t.Errorf("told before the grant: %s", &told)
		}
		w.obey(t.Context(), order{Verb: "lock", Name: "n"})
		synctest.Wait()
		grant, loss := strings.Index(told.String(), kindGranted), strings.Index(told.String(), kindLost)
		if grant < 0 || loss < grant {
			t.Errorf("told: %s", &told)
		}
	})
}

// What a lock was asked for comes with its grant, and is what its history says.
func TestAGrantSaysWhetherItIsRenewed(t *testing.T) {
	for _, noRenew := range []bool{false, true} {
		w := &workerProcess{held: make(map[int]numbered), peer: shortLived{}}
		var r report
		w.lock(t.Context(), order{Name: "n", NoRenew: noRenew}, w.peer.Lock, &r)
		h := &history.History{}
		(&worker{Name: "A", play: &play{History: h}}).hear(r)
		if got := h.Spans[0].NoRenew; got != noRenew {
			t.Errorf("without renewal: %v, though asked for %v", got, noRenew)
		}
	}
}

// shortLived gives locks that are lost at once.
type shortLived struct{}

func (s shortLived) Lock(context.Context, *driver.Request) (Holding, error)    { return s, nil }
func (s shortLived) TryLock(context.Context, *driver.Request) (Holding, error) { return s, nil }
func (shortLived) Name() string                                                { return "n" }
func (shortLived) Token() fencing.Token                                        { return 1 }
func (shortLived) Err() error                                                  { return locker.ErrLost }
func (shortLived) Deadline() time.Time                                         { return time.Time{} }
func (shortLived) Renew(context.Context) error                                 { return locker.ErrLost }
func (shortLived) Unlock(context.Context) error                                { return locker.ErrLost }
func (shortLived) Lost() <-chan struct{} {
	lost := make(chan struct{})
	close(lost)
	return lost
}

// A fault that did not happen must not count as one that did no harm.
func TestAWriteThatIsNotMadeCannotBeDelayed(t *testing.T) {
	w := &worker{Name: "A", waiting: make(map[int]chan report), gone: make(chan struct{})}
	w.play = &play{ctx: t.Context(), System: &System{}, History: &history.History{}}
	w.out = newLines(ordersFunc(func(order) { w.hear(report{ID: 1, Kind: kindWrote, Err: "lost"}) }))
	if err := try(func() { workerLock{Worker: w, Token: 1}.WriteDelayed(1) }); err == nil {
		t.Error("nothing was written, and the scenario goes on")
	}
}

// ordersFunc is called for each order.
type ordersFunc func(order)

func (f ordersFunc) Write(b []byte) (int, error) {
	var o order
	err := json.Unmarshal(b, &o)
	f(o)
	return len(b), err
}

// Goal: a program that does not call BecomeWorker is not started again and again.
func TestAProgramThatDoesNotBecomeAWorkerIsNotStarted(t *testing.T) {
	was := canWork
	defer func() { canWork = was }()
	canWork = false
	if cmd, err := workerCommand("url"); err == nil {
		t.Errorf("it starts %v", cmd)
	}
}

// Goal: what a worker has said stands within a line of the report.
func TestTheLastWordsOfAWorkerHaveNoLineBreakAtTheirEnd(t *testing.T) {
	var said tail
	if _, err := said.Write([]byte("first\nno such store\n")); err != nil || said.String() != "first\nno such store" {
		t.Errorf("%q, %v", said.String(), err)
	}
}
