package report

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
	"github.com/lockstile/locker/proof/matrix/internal/judge"
)

const second = driver.Instant(time.Second)

func svg(h *history.History) string { return draw(h).out.String() }

// picture is a timeline as a file of its own, which is legible on pages of any colour.
func picture(h *history.History) string {
	svg, rest, _ := strings.Cut(svg(h), ">")
	return svg + "><style>\n" + timelineStyle + `</style><rect width="100%" height="100%" class="paper"/>` + rest + "\n"
}

// Goal: the picture that the README shows is a run, drawn as today. The run is
// testdata/pause.json, the history of the cell that
//
//	go run ./compare --backends singlenode --scenarios "pause before the write" --json -
//
// has written. After a change, LOCKSTILE_DRAW=1 has this test draw the picture anew.
func TestThePictureOfAStaleWriteIsThatOfARun(t *testing.T) {
	const path = "../../../docs/timeline.svg"
	run, err := os.ReadFile("testdata/pause.json")
	if err != nil {
		t.Fatal(err)
	}
	h := new(history.History)
	if err := json.Unmarshal(run, h); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("LOCKSTILE_DRAW") != "" {
		if err := os.WriteFile(path, []byte(picture(h)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	shown, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(shown) != picture(h) {
		t.Error("docs/timeline.svg is drawn otherwise: run this test with LOCKSTILE_DRAW=1, and look at it")
	}
	for _, word := range []string{">process A</text>", ">process B</text>", ">storage</text>", ">paused</text>", ", token ", ">refused: stale token</text>", ">accepted</text>"} {
		if !strings.Contains(picture(h), word) {
			t.Errorf("the picture does not say %q", word)
		}
	}
}

func TestRowsAreInTheOrderOfTimeAndHaveRoomForTheirWords(t *testing.T) {
	h := &history.History{Began: second, Ended: 9 * second}
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 10071, From: 2 * second, Until: 6 * second, End: "unlocked"})
	h.Granted(history.Span{Worker: "B", Name: "n", Token: 10123, From: 5 * second, Until: 8 * second, End: `lock "n" lost: ` + strings.Repeat("a reason that is long ", 9)})
	h.Marks = []history.Mark{{At: 3 * second, Text: strings.Repeat("something long happened ", 9)}}
	d := draw(h)
	var at []driver.Instant
	for i, r := range d.rows {
		at = append(at, r.at/second)
		if i > 0 && r.top < d.rows[i-1].top+lineHeight*len(d.rows[i-1].lines) {
			t.Errorf("row %d begins at %d, in the words of the one before: %+v", i, r.top, d.rows[i-1])
		}
		for _, line := range r.lines {
			if float64(d.left(r))+letter*float64(len(line)) > float64(d.width) {
				t.Errorf("%q begins at %d of %d", line, d.left(r), d.width)
			}
		}
	}
	if len(d.columns) != 2 {
		t.Errorf("there are columns for %q", d.columns)
	}
	if len(at) != 5 || at[0] != 2 || at[1] != 3 || at[2] != 5 || at[3] != 6 || at[4] != 8 {
		t.Errorf("rows are at %v", at)
	}
	if !strings.Contains(svg(h), ">lock, token …0071</text>") || !strings.Contains(svg(h), ">lock, token …0123</text>") {
		t.Errorf("the tokens are not shown without the digit that both have:\n%s", svg(h))
	}
	h.Granted(history.Span{Worker: "C", Name: "n", Token: 107, From: 8 * second})
	if !strings.Contains(svg(h), ">lock, token 10071</text>") {
		t.Errorf("a token is not shown as it is beside one of other length:\n%s", svg(h))
	}
}

// reports returns what people read about one stale write of A's, whose token is 2.
func reports(t *testing.T, next fencing.Token, claimed, tokenless bool) (text, timeline, why string) {
	t.Helper()
	h, now := &history.History{Tokenless: tokenless}, driver.Now()
	h.Granted(history.Span{Worker: "A", Name: "n", Token: 2, Asked: now, From: now + 1, Until: now + 2})
	h.Claim(history.Write{Worker: "A", Name: "n", Token: 2})
	h.Put(history.Write{Worker: "A", Name: "n", Token: 2, At: now + 2}, nil)
	h.Granted(history.Span{Worker: "B", Name: "n", Token: next, Asked: now + 3, From: now + 4, Until: now + 5})
	if claimed {
		h.Claim(history.Write{Worker: "B", Name: "n", Token: next})
	}
	h.Put(history.Write{Worker: "A", Name: "n", Token: 2, At: now + 6}, nil)
	if first := h.Writes[0]; first.Stale || first.Early {
		t.Errorf("a write in turn is %+v", first)
	}
	why = judge.Find(locker.Guarantees{Exclusion: locker.PromptHolder, Tokens: locker.PromptHolder}, locker.PromptHolder, h).Why
	return h.Text(), svg(h), why
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
		{"early", 3, false, false, early, "early", "1 stale write; no guard could refuse, for nobody who certainly came later had claimed"},
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

// Goal: a reader sees which element was lost.
func TestTheElementOfAWriteIsShown(t *testing.T) {
	h := new(history.History)
	h.Put(history.Write{Worker: "A", Name: "n", Token: 1, Value: 3, Adds: true, At: 1}, &history.Sets{})
	h.Put(history.Write{Worker: "A", Name: "n", Token: 1, Value: 4, At: 2}, nil)
	if text := h.Text(); !strings.Contains(text, "A writes element 3 with token 1: in turn") || !strings.Contains(text, "A writes with token 1: in turn") {
		t.Errorf("the text is\n%s", text)
	}
	if drawn := svg(h); !strings.Contains(drawn, ">write element 3, token 1</text>") {
		t.Errorf("the timeline is\n%s", drawn)
	}
}
