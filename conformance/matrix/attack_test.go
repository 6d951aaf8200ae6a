package matrix

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

const second = locker.Instant(time.Second)

// Who is refused because of a claim is refused after it began, whatever the
// scheduler does to whoever notes it.
func TestAWriteThatIsRefusedBecauseOfAClaimUnderWayIsInOrder(t *testing.T) {
	h, done := new(History), make(chan struct{})
	h.mu.Lock() // the claim reaches the guard and cannot be noted yet
	go func() { h.claim("B", "n", 2); close(done) }()
	for h.guard.Check(t.Context(), "n", 1) == nil {
		time.Sleep(time.Millisecond)
	}
	called := locker.Now()
	refused := h.guard.Check(t.Context(), "n", 1) != nil
	h.ops = append(h.ops, writeOp{Write{Worker: "A", Name: "n", Token: 1, Refused: refused}, called, locker.Now()})
	h.mu.Unlock()
	<-done
	if !h.Linearizable() {
		t.Error("a guard that did what it should is called not linearizable")
	}
}

func TestExclusionThatIsNotPromisedIsNoFalseClaim(t *testing.T) {
	h := &History{Ended: 10 * second}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second, Robbed: true})
	h.granted(Span{Worker: "B", Name: "n", Token: 2, From: 2 * second})
	g := locker.Guarantees{Exclusion: locker.Unpromised}
	if got, why := judge(g, 0, h); got != BrokenFenced {
		t.Errorf("%q (%s), not %q", got, why, BrokenFenced)
	}
	if modest, untried := found(g, Kept, Kept, Kept).modesty(); len(modest)+len(untried) > 0 {
		t.Errorf("modest %v, not tried %v", modest, untried)
	}
}

func TestATimeInWhichBothHoldersAreStoppedCountsOnce(t *testing.T) {
	h := &History{Ended: 10 * second}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
	h.granted(Span{Worker: "B", Name: "n", Token: 2, From: 1 * second})
	h.away = []absence{{worker: "B", from: 4 * second, until: 6 * second}, {worker: "A", from: 2 * second, until: 9 * second}}
	if got := h.Overlap(); got != 2*time.Second {
		t.Errorf("two holders for %v, not 2s", got)
	}
}

// Goal: a store that frees the lock as soon as a holder is dead is not called
// false. Here it does so before this process has heard of the death.
func TestAKilledHolderBelievesNothingFromTheSignalOn(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	h := &History{}
	w := &Worker{Name: "A", play: &Play{History: h}, cmd: cmd, gone: make(chan struct{})}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1})
	go func() {
		_ = cmd.Wait()
		h.granted(Span{Worker: "B", Name: "n", Token: 2, From: locker.Now(), Until: locker.Now() + second})
		close(w.gone)
	}()
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := h.Overlap(); got > 0 {
		t.Errorf("two holders for %v, one of them dead", got)
	}
}

// A token that comes twice is what the matrix is to report.
func TestTheSameTokenCanBeLostTwice(t *testing.T) {
	w := &Worker{Name: "A", play: &Play{History: &History{}}, lost: make(map[fencing.Token]chan struct{})}
	for range 2 {
		w.hear(report{Kind: kindLost, Token: 7})
	}
}

func TestALossIsToldOfAfterItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		w := &worker{out: newLines(&told), held: make(map[string]Holding), peer: shortLived{}}
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

// shortLived gives locks that are lost at once.
type shortLived struct{}

func (s shortLived) Lock(context.Context, *locker.Request) (Holding, error)    { return s, nil }
func (s shortLived) TryLock(context.Context, *locker.Request) (Holding, error) { return s, nil }
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

// A store that grants nothing at all is not available to the fault, either: what
// the scenario would have broken is whole.
func TestAStandstillBeforeTheFaultIsAFalseClaim(t *testing.T) {
	still := &standstill{errors.New("A got no lock")}
	sc := Scenario{Name: "amnesia", Breaks: locker.DurableServer}
	p := &Play{History: &History{}}
	p.Arrange("a snapshot is taken", func() error { return nil })
	if c := p.cell(Cell{}, Subject{}, sc, still); c.Verdict != FalseClaim {
		t.Errorf("before the fault: %s (%s)", c.Verdict, c.Why)
	}
	p.Break("a server forgets", func() error { return nil })
	if c := p.cell(Cell{}, Subject{}, sc, still); c.Verdict != Unavailable {
		t.Errorf("after the fault: %s (%s)", c.Verdict, c.Why)
	}
}

func TestTokensThatWentBackDoNotShowThatExclusionCanBreak(t *testing.T) {
	m := found(locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.PromptHolder}, Broken, Kept, Kept)
	m.Cells[0].Stale = 0
	modest, _ := m.modesty()
	if len(modest) != 1 || modest[0].Guarantee != "exclusion" {
		t.Errorf("modest %v", modest)
	}
}

// Goal: a guard is not blamed for what it took before the next holder's claim,
// and is for what it took after it, also if it refused the claim itself.
func TestAGuardIsBlamedOnlyForWhatItTookAfterAClaim(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.PromptHolder}
	for _, c := range []struct {
		next    fencing.Token // whose token went back, or not
		claimed bool
		passed  int
	}{{2, false, 0}, {2, true, 0}, {1, true, 1}} {
		h, now := &History{}, locker.Now()
		h.granted(Span{Worker: "A", Name: "n", Token: 1, Asked: now, From: now + 1, Until: now + 2})
		h.claim("A", "n", 1)
		h.granted(Span{Worker: "B", Name: "n", Token: c.next, Asked: now + 3, From: now + 4, Until: now + 5})
		if c.claimed {
			h.claim("B", "n", c.next)
		}
		h.write(Write{Worker: "A", Name: "n", Token: 1, At: now + 6})
		if stale, passed := h.Stale(); stale != 1 || passed != c.passed {
			t.Errorf("%+v: %d stale, %d past the guard", c, stale, passed)
		}
		if v, why := judge(g, locker.PromptHolder, h); (v == FalseClaim) != (c.passed > 0) {
			t.Errorf("%+v: %s (%s)", c, v, why)
		}
	}
}

// A fault that did not happen is no fault that was borne.
func TestAWriteThatIsNotMadeCannotBeDelayed(t *testing.T) {
	w := &Worker{Name: "A", waiting: make(map[int]chan report), gone: make(chan struct{})}
	w.play = &Play{ctx: t.Context(), System: &System{}, History: &History{}}
	w.out = newLines(writerFunc(func() { w.hear(report{ID: 1, Kind: kindWrote, Err: "lost"}) }))
	if err := w.play.step(func() { Grant{w, 1}.WriteDelayed(1) }); err == nil {
		t.Error("nothing was written, and the scenario goes on")
	}
}

// writerFunc is called for each line, which it does not look at.
type writerFunc func()

func (f writerFunc) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// A loss may be told of late: the belief ended when it ended.
func TestABeliefEndsAtItsEarliestEnd(t *testing.T) {
	for _, ends := range [][]locker.Instant{{2 * second, 3 * second}, {3 * second, 2 * second}} {
		h := new(History)
		h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
		for _, at := range ends {
			h.ended("A", 1, at, "told")
		}
		if got := h.Spans[0].Until; got != 2*second {
			t.Errorf("told of %v, it ended at %v", ends, got)
		}
	}
}
