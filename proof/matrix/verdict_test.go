package matrix

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

const second = locker.Instant(time.Second)

func TestExclusionThatIsNotPromisedIsNoFalseClaim(t *testing.T) {
	h := &History{Ended: 10 * second}
	h.granted(Span{Worker: "A", Name: "n", Token: 1, From: 1 * second, TakenAway: true})
	h.granted(Span{Worker: "B", Name: "n", Token: 2, From: 2 * second})
	g := locker.Guarantees{Exclusion: locker.Unpromised}
	if got, why := judge(g, 0, h); got != Fenced {
		t.Errorf("%q (%s), not %q", got, why, Fenced)
	}
	if modest, untried := found(g, Kept, Kept, Kept).unproven(nil); len(modest)+len(untried) > 0 {
		t.Errorf("modest %v, not tried %v", modest, untried)
	}
}

// A store that grants nothing before the fault cannot blame it.
func TestAStandstillBeforeTheFaultIsAFalseClaim(t *testing.T) {
	still := &standstill{errors.New("A got no lock")}
	sc := Scenario{Name: "amnesia", Breaks: locker.DurableServer}
	p := &Play{History: &History{}, scenario: sc}
	p.Arrange("a snapshot is taken", func() error { return nil })
	if c := p.cell(Cell{}, Subject{}, still); c.Verdict != FalseClaim {
		t.Errorf("before the fault: %s (%s)", c.Verdict, c.Why)
	}
	p.Break("a server forgets", func() error { return nil })
	if c := p.cell(Cell{}, Subject{}, still); c.Verdict != Unavailable {
		t.Errorf("after the fault: %s (%s)", c.Verdict, c.Why)
	}
}

// Goal: a holder looks at its lock, the machine does not run it for a while, and its write comes when
// somebody else holds the lock. That is no false claim, unless there is another stale write.
func TestAHolderWhomTheMachineHindersMakesNoFalseClaim(t *testing.T) {
	late, prompt := Write{Looked: 2 * second, At: 4 * second}, Write{Looked: 4 * second, At: 4*second + 1}
	for _, c := range []struct {
		what           string
		leanOn, broken locker.Assumptions
		writes         []Write
		want           Verdict
	}{
		{"late", locker.PromptHolder, 0, []Write{late}, NotPlayed},
		{"late, as the scenario wants it", locker.PromptHolder, locker.PromptHolder, []Write{late}, Fenced},
		{"late, and another one", locker.PromptHolder, 0, []Write{late, prompt}, FalseClaim},
		{"late, and that is said to do no harm", locker.DurableServer, 0, []Write{late}, FalseClaim},
		{"nobody knows when it looked", locker.PromptHolder, 0, []Write{{At: 4 * second}}, FalseClaim},
		{"late, and its look was wrong", locker.PromptHolder, 0, []Write{{Looked: 3*second + second/2, At: 4 * second}}, FalseClaim},
		{"prompt, and its look was wrong, though holders are stopped", locker.PromptHolder, locker.PromptHolder, []Write{prompt}, FalseClaim},
		{"prompt, and its look was wrong, as of a store that forgets", locker.DurableServer, locker.DurableServer, []Write{prompt}, Fenced},
	} {
		h := succeeded(Span{Until: 3 * second}, c.writes...)
		if got, why := judge(locker.Guarantees{Exclusion: c.leanOn}, c.broken, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

// succeeded is a history in which B was granted A's lock at 3 s, and claimed the storage. Then A writes.
func succeeded(a Span, writes ...Write) *History {
	h := &History{Ended: 10 * second}
	a.Worker, a.Name, a.Token, a.From = "A", "n", 1, 1*second
	h.granted(a)
	h.granted(Span{Worker: "B", Name: "n", Token: 2, Asked: 2 * second, From: 3 * second})
	h.claim(Write{Worker: "B", Name: "n", Token: 2})
	for _, w := range writes {
		w.Worker, w.Name, w.Token = a.Worker, a.Name, a.Token
		h.write(w)
	}
	return h
}

// Goal: a lock that is not renewed ends by itself, also where locks have no lease, so that its holder's
// write may be late. That excuses no write of another lock, and no second holder.
func TestALockThatEndsByItselfLeansOnAPromptHolder(t *testing.T) {
	late, ends := Write{Looked: 2 * second, At: 4 * second}, Span{NoRenew: true, Until: 3 * second}
	for _, c := range []struct {
		what   string
		broken locker.Assumptions
		own    Span
		write  Write
		want   Verdict
	}{
		{"its holder was stopped", locker.PromptHolder, ends, late, Fenced},
		{"the machine hindered its holder", 0, ends, late, NotPlayed},
		{"nobody was stopped, and nobody hindered", 0, ends, Write{At: 4 * second}, FalseClaim},
		{"it is renewed", locker.PromptHolder, Span{Until: 3 * second}, late, FalseClaim},
		{"two believe", locker.PromptHolder, Span{NoRenew: true, Until: 4 * second}, late, FalseClaim},
	} {
		h := succeeded(c.own, c.write)
		if c.broken != 0 {
			h.Pauses = []Pause{{Worker: "A", From: 2 * second, Until: 4 * second, Midway: true}}
		}
		if got, why := judge(locker.Guarantees{}, c.broken, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

// Goal: a late write that the machine is blamed for hides nothing else that is wrong.
func TestAHolderWhomTheMachineHindersHidesNoFalseClaim(t *testing.T) {
	m := func(s Span) Span {
		s.Name, s.Asked = "m", s.From-second/2
		return s
	}
	for _, c := range []struct {
		what  string
		spans []Span
		want  Verdict
	}{
		{"nothing else", nil, NotPlayed},
		{"a lock was taken away", []Span{m(Span{Worker: "C", Token: 1, From: 1 * second, Until: 2 * second, TakenAway: true})}, FalseClaim},
		{"no order of the calls is lawful", []Span{
			m(Span{Worker: "C", Token: 1, Shared: true, From: 1 * second, Until: 2 * second}),
			m(Span{Worker: "D", Token: 2, From: 3 * second, Until: 4 * second}),
			m(Span{Worker: "C", Token: 1, Shared: true, From: 5 * second, Until: 6 * second}),
		}, FalseClaim},
	} {
		h := succeeded(Span{Until: 3 * second}, Write{Looked: 2 * second, At: 4 * second})
		for i, s := range c.spans {
			s.id = i
			h.granted(s)
		}
		if got, why := judge(locker.Guarantees{Exclusion: locker.PromptHolder}, 0, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

// Goal: that a holder was stopped midway is why two believe at once of whom it is one. It is no reason
// for others, nor for tokens that go back: the store has forgotten nothing.
func TestAHolderWhoIsStoppedMidwayExcusesNobodyElse(t *testing.T) {
	n := func(worker string, token fencing.Token, asked, from, until locker.Instant) Span {
		return Span{Worker: worker, Name: "n", Token: token, Asked: asked, From: from, Until: until, id: int(token)}
	}
	for _, c := range []struct {
		what    string
		stopped string
		spans   []Span
		want    Verdict
	}{
		{"one of two who hold at once", "A", []Span{n("A", 1, 0, 1*second, 5*second), n("B", 2, 0, 3*second, 6*second)}, Fenced},
		{"neither of them", "C", []Span{n("A", 1, 0, 1*second, 5*second), n("B", 2, 0, 3*second, 6*second)}, FalseClaim},
		{"one of two who come one after another", "A", []Span{n("A", 1, 0, 1*second, 3*second), n("B", 2, 0, 4*second, 6*second)}, Kept},
		{"and the second, who has waited, has the smaller token", "A", []Span{n("A", 2, 0, 1*second, 3*second), n("B", 1, 0, 4*second, 6*second)}, FalseClaim},
	} {
		h := &History{Ended: 10 * second, Pauses: []Pause{{Worker: c.stopped, From: 2 * second, Until: 5 * second, Midway: true}}}
		for _, s := range c.spans {
			h.granted(s)
		}
		g := locker.Guarantees{Exclusion: locker.PromptHolder | locker.DurableServer, Tokens: locker.ForwardClock}
		if got, why := judge(g, locker.PromptHolder, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

// Goal: how soon a process that goes on hears that it has lost its lock depends on the machine. If it does nothing
// before, it has not believed since it was stopped, and the next holder's grant is in order.
func TestAHolderWhoGoesOnAndDoesNothingHasNotBelievedSince(t *testing.T) {
	const ms = locker.Instant(time.Millisecond)
	wakes := 3*second + 6*ms
	for _, c := range []struct {
		what  string
		own   Span
		wrote locker.Instant
		want  Verdict
	}{
		{"it has not heard of the loss", Span{}, 0, Kept},
		{"it hears of it late", Span{Until: wakes + 6*ms}, 0, Kept},
		{"its unlock says that it held the lock", Span{Until: wakes + 6*ms, unlocked: true}, 0, FalseClaim},
		{"it claims the storage", Span{Claimed: wakes + ms}, 0, FalseClaim},
		{"it writes", Span{}, wakes + ms, FalseClaim},
	} {
		own := c.own
		own.Worker, own.Name, own.Token, own.From, own.id = "A", "n", 1, 1*second, 1
		h := &History{Ended: wakes + 7*ms, Pauses: []Pause{{Worker: "A", From: 2 * second, Until: wakes}}}
		h.granted(own)
		h.granted(Span{Worker: "B", Name: "n", Token: 2, Asked: 2 * second, From: 3 * second, Until: wakes + 2*ms, unlocked: true, id: 2})
		if c.wrote != 0 {
			h.write(Write{Worker: "A", Name: "n", Token: 1, At: c.wrote})
		}
		if got, why := judge(locker.Guarantees{}, 0, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

func TestTokensThatWentBackDoNotShowThatExclusionCanBreak(t *testing.T) {
	m := found(locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.PromptHolder}, Broken, Kept, Kept)
	m.Cells[0].Stale = 0
	modest, _ := m.unproven(nil)
	if len(modest) != 1 || modest[0].Guarantee != "exclusion" {
		t.Errorf("modest %v", modest)
	}
}
