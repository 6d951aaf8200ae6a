package matrix

import (
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// tellings is what people read of one stale write of A's, whose token is 2.
func tellings(t *testing.T, next fencing.Token, claimed, tokenless bool) (tale, timeline, why string) {
	t.Helper()
	h, now := &History{Tokenless: tokenless}, locker.Now()
	h.granted(Span{Worker: "A", Name: "n", Token: 2, Asked: now, From: now + 1, Until: now + 2})
	h.claim("A", "n", 2)
	h.write(Write{Worker: "A", Name: "n", Token: 2, At: now + 2})
	h.granted(Span{Worker: "B", Name: "n", Token: next, Asked: now + 3, From: now + 4, Until: now + 5})
	if claimed {
		h.claim("B", "n", next)
	}
	h.write(Write{Worker: "A", Name: "n", Token: 2, At: now + 6})
	if first := h.Writes[0]; first.Stale || first.Early {
		t.Errorf("a write in turn is %+v", first)
	}
	_, why = judge(locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.PromptHolder}, locker.PromptHolder, h)
	return h.Tale(), h.Timeline(), why
}

// Goal: a person who reads of a stale write is told what became of it, and is not
// told of a refusal where there was none.
func TestTheTaleOfAStaleWriteSaysWhatBecameOfIt(t *testing.T) {
	const early = "no guard could know, for that holder has not claimed the storage yet"
	for _, c := range []struct {
		name               string
		next               fencing.Token
		claimed, tokenless bool
		fate, class, why   string
	}{
		{"refused", 3, true, false, "the guard refuses it", "refused", "1 stale write; the guard refused"},
		{"early", 3, false, false, early, "early", "1 stale write; before the next holder's claim, so that no guard could know"},
		{"past the guard", 1, true, false, "IT IS TAKEN", "stale", "1 stale write; tokens did not tell"},
		{"no token", 3, false, true, "there is no token to refuse it by", "stale", "1 stale write; there is no token to refuse by"},
	} {
		tale, timeline, why := tellings(t, c.next, c.claimed, c.tokenless)
		if !strings.Contains(tale, ": stale, for somebody else has been granted the lock since; "+c.fate+"\n") {
			t.Errorf("%s: the tale is\n%s", c.name, tale)
		}
		if !strings.Contains(tale, "token 2: in turn\n") && !c.tokenless {
			t.Errorf("%s: the write in turn is not told so:\n%s", c.name, tale)
		}
		if !strings.Contains(timeline, `r="5" class="`+c.class+`"`) || !strings.Contains(timeline, c.fate+"</title>") {
			t.Errorf("%s: the timeline is\n%s", c.name, timeline)
		}
		if strings.Contains(timeline, `class="cross"`) != (c.class == "refused") {
			t.Errorf("%s: crossed out, or not:\n%s", c.name, timeline)
		}
		if why != c.why {
			t.Errorf("%s: the note is %q", c.name, why)
		}
		if told := strings.Contains(tale, "A has claimed the storage"); told != (c.class == "early") {
			t.Errorf("%s: claims are told of: %v\n%s", c.name, told, tale)
		}
	}
}

func TestANoteTellsEarlyWritesFromThoseThatTheGuardRefused(t *testing.T) {
	for _, c := range []struct {
		stale, early int
		want         string
	}{
		{0, 0, "nobody wrote out of turn"},
		{2, 0, "the guard refused"},
		{2, 2, "before the next holder's claim, so that no guard could know"},
		{3, 1, "the guard refused, but for 1 before the next holder's claim, of which no guard could know"},
	} {
		if got := fenced(c.stale, c.early); got != c.want {
			t.Errorf("%d stale, %d early: %q", c.stale, c.early, got)
		}
	}
	if got := said(0, 2, ""); got != "2 stale writes" {
		t.Errorf("%q", got)
	}
}
