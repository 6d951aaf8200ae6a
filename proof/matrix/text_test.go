package matrix

import (
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// reports returns what people read about one stale write of A's, whose token is 2.
func reports(t *testing.T, next fencing.Token, claimed, tokenless bool) (text, timeline, why string) {
	t.Helper()
	h, now := &History{Tokenless: tokenless}, locker.Now()
	h.granted(Span{Worker: "A", Name: "n", Token: 2, Asked: now, From: now + 1, Until: now + 2})
	h.claim(Write{Worker: "A", Name: "n", Token: 2})
	h.write(Write{Worker: "A", Name: "n", Token: 2, At: now + 2})
	h.granted(Span{Worker: "B", Name: "n", Token: next, Asked: now + 3, From: now + 4, Until: now + 5})
	if claimed {
		h.claim(Write{Worker: "B", Name: "n", Token: next})
	}
	h.write(Write{Worker: "A", Name: "n", Token: 2, At: now + 6})
	if first := h.Writes[0]; first.Stale || first.Early {
		t.Errorf("a write in turn is %+v", first)
	}
	_, why = judge(locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.PromptHolder}, locker.PromptHolder, h)
	return h.Text(), h.Timeline(), why
}

// Goal: the reports say what became of a stale write, and no refusal that there was not.
func TestTheReportsOfAStaleWriteSayWhatBecameOfIt(t *testing.T) {
	const early = "no guard could refuse it, for that holder has not claimed the storage yet"
	for _, c := range []struct {
		name                string
		next                fencing.Token
		claimed, tokenless  bool
		outcome, class, why string
	}{
		{"refused", 3, true, false, "the guard refuses it", "refused", "1 stale write; the guard refused"},
		{"early", 3, false, false, early, "early", "1 stale write; before the next holder's claim, so that no guard could refuse"},
		{"past the guard", 1, true, false, "IT IS TAKEN", "stale", "1 stale write; tokens were out of order"},
		{"no token", 3, false, true, "there is no token to refuse it by", "stale", "1 stale write; there is no token to refuse by"},
	} {
		text, timeline, why := reports(t, c.next, c.claimed, c.tokenless)
		if !strings.Contains(text, ": stale, for somebody else has been granted the lock since; "+c.outcome+"\n") {
			t.Errorf("%s: the text is\n%s", c.name, text)
		}
		if !strings.Contains(text, "token 2: in turn\n") && !c.tokenless {
			t.Errorf("%s: the text does not say that the first write was in turn:\n%s", c.name, text)
		}
		if !strings.Contains(timeline, `class="way `+c.class+`"`) || !strings.Contains(timeline, c.outcome+"</title>") {
			t.Errorf("%s: the timeline is\n%s", c.name, timeline)
		}
		if strings.Contains(timeline, `class="cross"`) != (c.class == "refused") {
			t.Errorf("%s: crossed out, or not:\n%s", c.name, timeline)
		}
		if why != c.why {
			t.Errorf("%s: the note is %q", c.name, why)
		}
		if shown := strings.Contains(text, "A has claimed the storage"); shown != (c.class == "early") {
			t.Errorf("%s: the text shows claims: %v\n%s", c.name, shown, text)
		}
	}
}

func TestANoteCountsEarlyWritesApartFromThoseThatTheGuardRefused(t *testing.T) {
	for _, c := range []struct {
		stale, early int
		want         string
	}{
		{0, 0, "nobody wrote out of turn"},
		{2, 0, "the guard refused"},
		{2, 2, "before the next holder's claim, so that no guard could refuse"},
		{3, 1, "the guard refused, except 1 before the next holder's claim, which no guard could refuse"},
	} {
		if got := fenced(c.stale, c.early); got != c.want {
			t.Errorf("%d stale, %d early: %q", c.stale, c.early, got)
		}
	}
	if got := said(0, 2, ""); got != "2 stale writes" {
		t.Errorf("%q", got)
	}
}
