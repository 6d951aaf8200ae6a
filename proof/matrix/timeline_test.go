package matrix

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/lockstile/locker"
)

// picture is a timeline as a file of its own, which is legible on pages of any colour.
func picture(h *History) string {
	svg, rest, _ := strings.Cut(h.Timeline(), ">")
	return svg + "><style>\n" + timelineStyle + `</style><rect width="100%" height="100%" class="paper"/>` + rest + "\n"
}

// Goal: the picture that the README shows is a run, drawn as today. The run is
// testdata/pause.json, the history of the cell that
//
//	go run ./compare --backends singlenode --scenarios "pause before the write" --json -
//
// has written. After a change, LOCKSTILE_DRAW=1 has this test draw the picture anew.
func TestThePictureOfAStaleWriteIsThatOfARun(t *testing.T) {
	const path = "../../docs/timeline.svg"
	run, err := os.ReadFile("testdata/pause.json")
	if err != nil {
		t.Fatal(err)
	}
	h := new(History)
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
	h := &History{Began: second, Ended: 9 * second}
	h.granted(Span{Worker: "A", Name: "n", Token: 10071, From: 2 * second, Until: 6 * second, End: "unlocked"})
	h.granted(Span{Worker: "B", Name: "n", Token: 10123, From: 5 * second, Until: 8 * second, End: `lock "n" lost: ` + strings.Repeat("a reason that is long ", 9)})
	h.Marks = []Mark{{At: 3 * second, Text: strings.Repeat("something long happened ", 9)}}
	d := h.draw()
	var at []locker.Instant
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
	if !strings.Contains(h.Timeline(), ">lock, token …0071</text>") || !strings.Contains(h.Timeline(), ">lock, token …0123</text>") {
		t.Errorf("the tokens are not shown without the digit that both have:\n%s", h.Timeline())
	}
	h.granted(Span{Worker: "C", Name: "n", Token: 107, From: 8 * second})
	if !strings.Contains(h.Timeline(), ">lock, token 10071</text>") {
		t.Errorf("a token is not shown as it is beside one of other length:\n%s", h.Timeline())
	}
}
