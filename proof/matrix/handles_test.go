package matrix

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
	"github.com/lockstile/locker/proof/matrix/internal/history"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

// inProcess returns a worker that obeys in this process, with a Locker in memory.
func inProcess(p *play, name string, l locker.Locker) *worker {
	w := &worker{Name: name, play: p, waiting: make(map[int]chan report), lost: make(map[fencing.Token]chan struct{}), gone: make(chan struct{})}
	process := &workerProcess{peer: AsPeer(l), held: make(map[int]numbered), out: newLines(reportsFunc(w.hear))}
	w.out = newLines(ordersFunc(func(o order) { go process.obey(p.ctx, o) }))
	return w
}

// reportsFunc is called for each report.
type reportsFunc func(report)

func (f reportsFunc) Write(b []byte) (int, error) {
	var r report
	err := json.Unmarshal(b, &r)
	f(r)
	return len(b), err
}

// inMemory returns a play on a Locker in memory, with two workers.
func inMemory(t *testing.T) (p *play, a, b *worker) {
	locks := lockertest.New()
	p = &play{ctx: t.Context(), System: &System{}, History: &history.History{Began: now()}, TTL: 3 * time.Second, name: "n", guarantees: locks.Guarantees()}
	return p, inProcess(p, "A", locks), inProcess(p, "B", locks.Another())
}

// Goal: the history knows who believed, and a guard refuses the write of a process that has detached its lock.
func TestTheLateWriteOfALockThatWasHandedOverIsRefused(t *testing.T) {
	p, a, b := inMemory(t)
	first := a.Lock()
	left := first.detach()
	if left.Handle == "" || p.History.Spans[0].Until == 0 || first.Write(1) || len(p.History.Writes) > 0 {
		t.Fatalf("detached: %+v\n%s", left, p.History.Text())
	}
	o := order{Name: p.name, Handle: left.Handle, TTL: p.TTL}
	b.renewHandle(o)
	second, err := b.resume(o)
	if err != nil || second.Token <= first.Token {
		t.Fatalf("resumed: %+v, %v\n%s", second, err, p.History.Text())
	}
	second.Write(2)
	<-first.tell(order{Verb: "write", Value: 3, Looked: left.Asked})
	if w := p.History.Writes[1]; !w.Stale || !w.Refused || w.Looked != left.Asked {
		t.Errorf("the late write is %+v", w)
	}
	if again, err := a.resume(o); err == nil {
		t.Errorf("a handle is good for two: %+v", again)
	}
	second.Unlock()
	a.Lock().Unlock()
	p.History.Ended = now()
	if f := judge.Find(p.guarantees, locker.PromptHolder, p.History); f.Verdict != Fenced {
		t.Errorf("%s: %s\n%s", f.Verdict, f.Why, p.History.Text())
	}
}

// Goal: a process that heard late that it had detached its lock, because it was stopped, believed no longer than its lease.
func TestAHolderThatHasDetachedBelievesNoLongerThanItsLease(t *testing.T) {
	for _, c := range []struct {
		r     report
		until driver.Instant
	}{
		{report{Handle: "h", At: 3, Deadline: 9}, 3},
		{report{Handle: "h", At: 9, Deadline: 3}, 3},
		{report{Err: "silence", At: 3, Deadline: 9}, 0},
	} {
		h := new(history.History)
		h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, ID: 7, From: 1})
		c.r.Kind, c.r.Lock = kindDetached, 7
		(&worker{Name: "A", play: &play{History: h}}).hear(c.r)
		if got := h.Spans[0].Until; got != c.until {
			t.Errorf("%+v: it believed until %d, not %d", c.r, got, c.until)
		}
	}
}

// Goal: what is declared is tried, nothing else is, and whoever declares it and refuses it is found out.
func TestOnlyLocksThatCanLeaveTheirProcessAreHandedOver(t *testing.T) {
	i := slices.IndexFunc(Scenarios(), func(sc Scenario) bool { return sc.Name == "handed over" })
	sc := Scenarios()[i]
	played := false
	sc.play = func(*play) { played = true }
	for _, declared := range []bool{true, false} {
		sub := Subject{Name: "it", Guarantees: locker.Guarantees{Detaches: declared}, Start: func(*Lab) (*System, error) { return &System{}, nil }}
		played = false
		if cell := Run(t.Context(), Settings{}, []Subject{sub}, []Scenario{sc}).Cells[0]; played != declared || (cell.Verdict == Skipped) == declared {
			t.Errorf("declared: %v, and it was played: %v, %s (%s)", declared, played, cell.Verdict, cell.Why)
		}
	}
	w := attempts(t, time.Second, report{Kind: kindDetached, Err: "no", NoKind: true})
	if (workerLock{Worker: w}).detach(); w.play.History.Untrue == "" {
		t.Error("a declaration is false, and nobody says so")
	}
}
