package judge

import (
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

const second = driver.Instant(time.Second)

func TestExclusionThatIsNotPromisedIsNoFalseClaim(t *testing.T) {
	h := &history.History{Ended: 10 * second}
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, From: 1 * second, TakenAway: true})
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, From: 2 * second})
	g := locker.Guarantees{Exclusion: locker.Unpromised}
	if got, why := judge(g, 0, h); got != Fenced {
		t.Errorf("%q (%s), not %q", got, why, Fenced)
	}
}

// Goal: a holder looks at its lock, the machine does not run it for a while, and its write comes when
// somebody else holds the lock. That is no false claim, unless there is another stale write.
func TestAHolderWhomTheMachineHindersMakesNoFalseClaim(t *testing.T) {
	late, prompt := history.Write{Looked: 2 * second, At: 4 * second}, history.Write{Looked: 4 * second, At: 4*second + 1}
	for _, c := range []struct {
		what           string
		leanOn, broken locker.Assumptions
		writes         []history.Write
		want           Verdict
	}{
		{"late", locker.PromptHolder, 0, []history.Write{late}, NotPlayed},
		{"late, as the scenario wants it", locker.PromptHolder, locker.PromptHolder, []history.Write{late}, Fenced},
		{"late, and another one", locker.PromptHolder, 0, []history.Write{late, prompt}, FalseClaim},
		{"late, and that is said to do no harm", locker.DurableServer, 0, []history.Write{late}, FalseClaim},
		{"nobody knows when it looked", locker.PromptHolder, 0, []history.Write{{At: 4 * second}}, FalseClaim},
		{"late, and its look was wrong", locker.PromptHolder, 0, []history.Write{{Looked: 3*second + second/2, At: 4 * second}}, FalseClaim},
		{"prompt, and its look was wrong, though holders are stopped", locker.PromptHolder, locker.PromptHolder, []history.Write{prompt}, FalseClaim},
		{"prompt, and its look was wrong, as of a store that forgets", locker.DurableServer, locker.DurableServer, []history.Write{prompt}, Fenced},
	} {
		h := succeeded(history.Span{Until: 3 * second}, c.writes...)
		if got, why := judge(locker.Guarantees{Exclusion: c.leanOn}, c.broken, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

// succeeded is a history in which B was granted A's lock at 3 s, and claimed the storage. Then A writes.
func succeeded(a history.Span, writes ...history.Write) *history.History {
	h := &history.History{Ended: 10 * second}
	a.Worker, a.Name, a.Token, a.From = "A", "n", 1, 1*second
	h.Granted(a)
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, Asked: 2 * second, From: 3 * second})
	h.Claim(history.Write{Worker: "B", Name: "n", Token: 2})
	for _, w := range writes {
		w.Worker, w.Name, w.Token = a.Worker, a.Name, a.Token
		h.Put(w, nil)
	}
	return h
}

// Goal: a lock that is not renewed ends by itself, also where locks have no lease, so that its holder's
// write may be late. That excuses no write of another lock, and no second holder.
func TestALockThatEndsByItselfLeansOnAPromptHolder(t *testing.T) {
	late, ends := history.Write{Looked: 2 * second, At: 4 * second}, history.Span{NoRenew: true, Until: 3 * second}
	for _, c := range []struct {
		what   string
		broken locker.Assumptions
		own    history.Span
		write  history.Write
		want   Verdict
	}{
		{"its holder was stopped", locker.PromptHolder, ends, late, Fenced},
		{"the machine hindered its holder", 0, ends, late, NotPlayed},
		{"nobody was stopped, and nobody hindered", 0, ends, history.Write{At: 4 * second}, FalseClaim},
		{"it is renewed", locker.PromptHolder, history.Span{Until: 3 * second}, late, FalseClaim},
		{"two believe", locker.PromptHolder, history.Span{NoRenew: true, Until: 4 * second}, late, FalseClaim},
	} {
		h := succeeded(c.own, c.write)
		if c.broken != 0 {
			h.Pauses = []history.Pause{{Worker: "A", From: 2 * second, Until: 4 * second, Midway: true}}
		}
		if got, why := judge(locker.Guarantees{}, c.broken, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

// Goal: a late write that the machine is blamed for hides nothing else that is wrong.
func TestAHolderWhomTheMachineHindersHidesNoFalseClaim(t *testing.T) {
	m := func(s history.Span) history.Span {
		s.Name, s.Asked = "m", s.From-second/2
		return s
	}
	for _, c := range []struct {
		what  string
		spans []history.Span
		want  Verdict
	}{
		{"nothing else", nil, NotPlayed},
		{"a lock was taken away", []history.Span{m(history.Span{Worker: "C", Token: 1, From: 1 * second, Until: 2 * second, TakenAway: true})}, FalseClaim},
		{"no order of the calls is lawful", []history.Span{
			m(history.Span{Worker: "C", Token: 1, Shared: true, From: 1 * second, Until: 2 * second}),
			m(history.Span{Worker: "D", Token: 2, From: 3 * second, Until: 4 * second}),
			m(history.Span{Worker: "C", Token: 1, Shared: true, From: 5 * second, Until: 6 * second}),
		}, FalseClaim},
	} {
		h := succeeded(history.Span{Until: 3 * second}, history.Write{Looked: 2 * second, At: 4 * second})
		for i, s := range c.spans {
			s.ID = i
			h.Granted(s)
		}
		if got, why := judge(locker.Guarantees{Exclusion: locker.PromptHolder}, 0, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

// Goal: that a holder was stopped midway is why two believe at once of whom it is one. It is no reason
// for others, nor for tokens that go back: the store has forgotten nothing.
func TestAHolderWhoIsStoppedMidwayExcusesNobodyElse(t *testing.T) {
	n := func(worker string, token fencing.Token, asked, from, until driver.Instant) history.Span {
		return history.Span{Worker: worker, Name: "n", Token: token, Asked: asked, From: from, Until: until, ID: int(token)}
	}
	for _, c := range []struct {
		what    string
		stopped string
		spans   []history.Span
		want    Verdict
	}{
		{"one of two who hold at once", "A", []history.Span{n("A", 1, 0, 1*second, 5*second), n("B", 2, 0, 3*second, 6*second)}, Fenced},
		{"neither of them", "C", []history.Span{n("A", 1, 0, 1*second, 5*second), n("B", 2, 0, 3*second, 6*second)}, FalseClaim},
		{"one of two who come one after another", "A", []history.Span{n("A", 1, 0, 1*second, 3*second), n("B", 2, 0, 4*second, 6*second)}, Kept},
		{"and the second, who has waited, has the smaller token", "A", []history.Span{n("A", 2, 0, 1*second, 3*second), n("B", 1, 0, 4*second, 6*second)}, FalseClaim},
	} {
		h := &history.History{Ended: 10 * second, Pauses: []history.Pause{{Worker: c.stopped, From: 2 * second, Until: 5 * second, Midway: true}}}
		for _, s := range c.spans {
			h.Granted(s)
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
	const ms = driver.Instant(time.Millisecond)
	wakes := 3*second + 6*ms
	for _, c := range []struct {
		what  string
		own   history.Span
		wrote driver.Instant
		want  Verdict
	}{
		{"it has not heard of the loss", history.Span{}, 0, Kept},
		{"it hears of it late", history.Span{Until: wakes + 6*ms}, 0, Kept},
		{"its unlock says that it held the lock", history.Span{Until: wakes + 6*ms, Unlocked: true}, 0, FalseClaim},
		{"it claims the storage", history.Span{Claimed: wakes + ms}, 0, FalseClaim},
		{"it writes", history.Span{}, wakes + ms, FalseClaim},
	} {
		own := c.own
		own.Worker, own.Name, own.Token, own.From, own.ID = "A", "n", 1, 1*second, 1
		h := &history.History{Ended: wakes + 7*ms, Pauses: []history.Pause{{Worker: "A", From: 2 * second, Until: wakes}}}
		h.Granted(own)
		h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, Asked: 2 * second, From: 3 * second, Until: wakes + 2*ms, Unlocked: true, ID: 2})
		if c.wrote != 0 {
			h.Put(history.Write{Worker: "A", Name: "n", Token: 1, At: c.wrote}, nil)
		}
		if got, why := judge(locker.Guarantees{}, 0, h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.what, got, why, c.want)
		}
	}
}

// staleWrite is a history in which A writes with token 1 after B was granted the lock.
func staleWrite(tokenless bool, tokenOfB fencing.Token) *history.History {
	h := &history.History{Tokenless: tokenless}
	now := driver.Now()
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, Asked: now, From: now + 1, Until: now + 2})
	h.Claim(history.Write{Worker: "A", Name: "n", Token: 1})
	h.Granted(history.Span{Worker: "B", Name: "n", Token: tokenOfB, Asked: now + 3, From: now + 4, Until: now + 5})
	h.Claim(history.Write{Worker: "B", Name: "n", Token: tokenOfB})
	h.Put(history.Write{Worker: "A", Name: "n", Token: 1, At: driver.Now()}, nil)
	return h
}

func TestAStaleWriteWithoutATokenIsBrokenAndWithOneIsFenced(t *testing.T) {
	none := locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.Unpromised}
	some := locker.Guarantees{Exclusion: locker.PromptHolder}
	for _, c := range []struct {
		name   string
		g      locker.Guarantees
		broken locker.Assumptions
		h      *history.History
		want   Verdict
	}{
		{"no token, as declared", none, locker.PromptHolder, staleWrite(true, 1), Broken},
		{"no token, and it assumes something else", none, locker.DurableServer, staleWrite(true, 1), FalseClaim},
		{"no token, and nothing is broken", none, 0, staleWrite(true, 1), FalseClaim},
		{"a token", some, locker.PromptHolder, staleWrite(false, 2), Fenced},
		{"a token is promised, and there is none", some, locker.PromptHolder, staleWrite(false, 1), FalseClaim},
	} {
		if got, why := judge(c.g, c.broken, c.h); got != c.want {
			t.Errorf("%s: %q (%s), not %q", c.name, got, why, c.want)
		}
	}
}

func TestTwoHoldersWithoutTokensAreNotFencedThoughNobodyWrites(t *testing.T) {
	h := &history.History{Ended: driver.Instant(time.Second), Tokenless: true}
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, From: 1})
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 1, From: 2})
	g := locker.Guarantees{Exclusion: locker.SteadyClocks, Tokens: locker.Unpromised}
	if got, why := judge(g, locker.SteadyClocks, h); got != Broken {
		t.Errorf("%q (%s), not %q", got, why, Broken)
	}
}

func TestOneHolderAfterAnotherIsKeptWithoutTokens(t *testing.T) {
	h := &history.History{Tokenless: true}
	for from, worker := range []string{"A", "B"} {
		h.Granted(history.Span{Worker: worker, Name: "n", Token: 1, From: driver.Instant(10*from + 1), Until: driver.Instant(10*from + 5)})
	}
	if got, why := judge(locker.Guarantees{Tokens: locker.Unpromised}, 0, h); got != Kept {
		t.Errorf("%q (%s), not %q", got, why, Kept)
	}
}

func TestAStoppedProcessBelievesNothing(t *testing.T) {
	second := driver.Instant(time.Second)
	h := &history.History{Ended: 10 * second}
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 1, From: 1 * second})
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 2, From: 4 * second})
	h.Pauses = []history.Pause{{Worker: "A", From: 2 * second, Until: 9 * second}, {Worker: "C", From: 0}}
	if got, _ := overlap(h); got != time.Second { // from A's waking to the end
		t.Errorf("two holders for %v, not 1s", got)
	}
	h.Pauses[0].Until = 0
	if got, _ := overlap(h); got != 0 {
		t.Errorf("two holders for %v though one never wakes", got)
	}
	h.Pauses[0].Midway = true
	if got, _ := overlap(h); got != 6*time.Second {
		t.Errorf("two holders for %v, one of them about to write, not 6s", got)
	}
}

// Method: a declaration that assumes everything.
func TestAFalseStatementIsAFalseClaim(t *testing.T) {
	h, most := &history.History{Ended: second}, locker.Guarantees{Exclusion: ^locker.Assumptions(0), Tokens: ^locker.Assumptions(0)}
	if got, why := judge(most, locker.ServerUp, h); got != Kept {
		t.Errorf("%q (%s), not %q", got, why, Kept)
	}
	h.NoteUntrue("%s was told that it holds nothing", "A")
	if got, why := judge(most, locker.ServerUp, h); got != FalseClaim || why != "A was told that it holds nothing" {
		t.Errorf("%q (%s), not %q", got, why, FalseClaim)
	}
}

func TestANoteCountsWritesThatNoGuardCouldRefuseApart(t *testing.T) {
	for _, c := range []struct {
		stale, taken int
		want         string
	}{
		{0, 0, "nobody wrote out of turn"},
		{2, 0, "the guard refused"},
		{2, 2, "no guard could refuse, for nobody who certainly came later had claimed"},
		{3, 1, "the guard refused, except 1 that no guard could refuse"},
	} {
		if got := fenced(c.stale, c.taken); got != c.want {
			t.Errorf("%d stale, %d taken: %q", c.stale, c.taken, got)
		}
	}
	if got := said(0, 2, ""); got != "2 stale writes" {
		t.Errorf("%q", got)
	}
}

func sets(unguarded, guarded []int) history.Sets {
	return history.Sets{Unguarded: unguarded, Guarded: guarded}
}

// updated is a history of elements that were confirmed, and of those that are there in the
// end. The first of them was added before anybody was paused.
func updated(unguarded, guarded []int, final history.Sets) *history.History {
	return &history.History{Updates: &history.Updates{Confirmed: sets(unguarded, guarded), Final: final, Calm: 1}}
}

// Goal: what the storage has in the end is judged, whatever is known of the holders. Here
// nothing is known of them.
func TestALostUpdateIsJudgedByWhatWasDeclared(t *testing.T) {
	all := []int{1, 2, 3}
	kept := updated(all, all, sets(all, all))
	bare := updated(all, []int{1, 3}, sets([]int{1, 3}, []int{3, 1}))
	guarded := updated(all, all, sets(all, []int{1, 3}))
	calm := updated(all, all, sets([]int{2, 3}, all))
	leans := locker.Guarantees{Exclusion: locker.PromptHolder}
	for _, c := range []struct {
		name string
		g    locker.Guarantees
		h    *history.History
		want Verdict
	}{
		{"nothing lost", locker.Guarantees{}, kept, Kept},
		{"without the guard, as declared", leans, bare, Fenced},
		{"without the guard, and it assumes something else", locker.Guarantees{Exclusion: locker.DurableServer}, bare, FalseClaim},
		{"without the guard, and exclusion is not promised", locker.Guarantees{Exclusion: locker.Unpromised}, bare, Fenced},
		{"with the guard", leans, guarded, FalseClaim},
		{"with the guard, and tokens assume it", locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.PromptHolder}, guarded, Broken},
		{"before anybody was paused", leans, calm, FalseClaim},
		{"before anybody was paused, and exclusion is not promised", locker.Guarantees{Exclusion: locker.Unpromised}, calm, Fenced},
	} {
		if got, why := judge(c.g, locker.PromptHolder, c.h); got != c.want {
			t.Errorf("%s: %s (%s), not %s", c.name, got, why, c.want)
		}
	}
	bare.Tokenless = true
	if got, why := judge(leans, locker.PromptHolder, bare); got != Broken {
		t.Errorf("without a token: %s (%s), not %s", got, why, Broken)
	}
}

// Goal: a holder that was stopped excuses its late writes, and no second holder.
func TestAPauseExcusesNoSecondHolder(t *testing.T) {
	g := locker.Guarantees{Exclusion: locker.PromptHolder}
	for _, midway := range []bool{false, true} {
		h := &history.History{Began: 1, Ended: 20 * second, Pauses: []history.Pause{{Worker: "A", From: 2 * second, Until: 3 * second, Midway: midway}}}
		h.Granted(history.Span{Worker: "A", Name: "x", Token: 1, Asked: 1, From: 1, Until: 10 * second})
		h.Granted(history.Span{Worker: "B", Name: "x", Token: 2, Asked: 5 * second, From: 5 * second, Until: 6 * second})
		if v, why := judge(g, locker.PromptHolder, h); (v == FalseClaim) == midway {
			t.Errorf("midway %v: %s (%s)", midway, v, why)
		}
	}
}
