package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// timelineStyle is for the page or the file that an image is in.
//
//go:embed timeline.css
var timelineStyle string

// The measures of a timeline, in pixels.
const (
	firstColumn = 74
	columnGap   = 176
	beside      = 18 // from a column to its words
	rightMargin = 36
	headHeight  = 26
	lineHeight  = 17
	letter      = 6.8 // the width of most of them
)

// timeline draws a history as SVG. Time goes down: a row for each event, a column for
// each worker and one for the storage. Rows are as high as their words, and show when.
type timeline struct {
	h       *history.History
	columns []string // workers
	rows    []row
	prefix  int // so many digits are the same in all tokens
	width   int
	out     strings.Builder
}

// row is one event.
type row struct {
	at     driver.Instant
	worker string // "" is a mark
	words  string
	more   string         // is shown when somebody points at it
	write  *history.Write // that reached the storage
	top    int
	lines  []string // of words
}

// draw draws an SVG image, which needs timelineStyle.
func draw(h *history.History) *timeline {
	t := &timeline{h: h}
	for _, s := range h.Spans {
		t.column(s.Worker)
	}
	for _, w := range h.Writes {
		t.column(w.Worker)
	}
	t.width = firstColumn + columnGap*len(t.columns) + rightMargin
	t.prefix = samePrefix(h)
	t.collect()
	bottom := t.place()
	fmt.Fprintf(&t.out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, t.width, bottom, t.width, bottom)
	for i, name := range append(slices.Clone(t.columns), "storage") {
		x := firstColumn + columnGap*i
		if i < len(t.columns) {
			name = "process " + name
		}
		fmt.Fprintf(&t.out, `<text x="%d" y="16" class="who">%s</text><path d="M%d %dV%d" class="life"/>`, x, html.EscapeString(name), x, headHeight, bottom-4)
	}
	for _, s := range h.Spans {
		t.belief(s)
	}
	for _, p := range h.Pauses {
		t.pause(p)
	}
	for _, r := range t.rows {
		t.event(r)
	}
	t.out.WriteString("</svg>")
	return t
}

// column returns the number of a worker's column, which it makes if there is none yet.
func (t *timeline) column(worker string) int {
	if i := slices.Index(t.columns, worker); i >= 0 {
		return i
	}
	t.columns = append(t.columns, worker)
	return len(t.columns) - 1
}

func (t *timeline) x(worker string) int { return firstColumn + columnGap*t.column(worker) }

// collect makes the rows, in the order of time.
func (t *timeline) collect() {
	for _, m := range t.h.Marks {
		t.rows = append(t.rows, row{at: m.At, words: t.h.MarkText(m)})
	}
	for _, s := range t.h.Spans {
		t.rows = append(t.rows, row{at: s.From, worker: s.Worker, words: "lock" + t.token(s.Token)})
	}
	for _, w := range t.h.Writes {
		t.rows = append(t.rows, row{at: w.At, worker: w.Worker, words: w.Verb() + w.Object() + t.token(w.Token), write: &w,
			more: fmt.Sprintf("%s %ss%s with %s: %s", w.Worker, w.Verb(), w.Object(), t.h.TokenText(w.Token), t.h.Outcome(w))})
	}
	for _, s := range t.h.Spans {
		if s.Until != 0 {
			words := s.End
			if _, why, lost := strings.Cut(s.End, " lost: "); lost {
				words = "lost: " + why // without the name, which is the same for all
			}
			t.rows = append(t.rows, row{at: s.Until, worker: s.Worker, words: words, more: s.End})
		}
	}
	slices.SortStableFunc(t.rows, func(a, b row) int { return cmp.Compare(a.at, b.at) })
}

// place gives each row its lines and its height, and returns where the last one ends.
func (t *timeline) place() int {
	y := headHeight + 6
	for i := range t.rows {
		r := &t.rows[i]
		r.top, r.lines = y, wrap(r.words, int(float64(t.width-t.left(*r))/letter))
		y += lineHeight*len(r.lines) + 8
		if r.write != nil {
			y += lineHeight
		}
	}
	return y + 8
}

// left is where the words of a row begin.
func (t *timeline) left(r row) int {
	if r.worker == "" {
		return firstColumn - 14
	}
	return t.x(r.worker) + beside
}

// wrap breaks a text into lines of at most n letters, if no word is longer.
func wrap(text string, n int) (lines []string) {
	for word := range strings.FieldsSeq(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= n {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

// y is where an instant is: at the last event by then.
func (t *timeline) y(at driver.Instant) int {
	y := headHeight
	for _, r := range t.rows {
		if r.at <= at {
			y = r.top + 9
		}
	}
	return y
}

// belief draws a bar for as long as a holder believes.
func (t *timeline) belief(s history.Span) {
	top, bottom := t.y(s.From), t.y(t.h.EndOf(s))
	fmt.Fprintf(&t.out, `<rect x="%d" y="%d" width="12" height="%d" rx="3" class="belief"><title>%s believes from %s to %s, %s. %s</title></rect>`,
		t.x(s.Worker)-6, top, max(bottom-top, 4), html.EscapeString(s.Worker),
		t.since(s.From), t.since(t.h.EndOf(s)), t.h.TokenText(s.Token), html.EscapeString(s.End))
}

// pause draws a frame for as long as a process is stopped. The word stands beside it in
// a row that leaves room.
func (t *timeline) pause(p history.Pause) {
	until := p.Until
	if until == 0 {
		until = t.h.Ended
	}
	x, top, bottom := t.x(p.Worker), t.y(p.From), t.y(until)
	fmt.Fprintf(&t.out, `<rect x="%d" y="%d" width="22" height="%d" rx="5" class="pause"><title>%s is stopped from %s to %s</title></rect>`,
		x-11, top, max(bottom-top, 4), html.EscapeString(p.Worker), t.since(p.From), t.since(until))
	for _, r := range t.rows {
		if r.at > p.From && r.at < until && r.worker != "" && t.x(r.worker) > x {
			fmt.Fprintf(&t.out, `<text x="%d" y="%d" class="paused">paused</text>`, x+beside, r.top+13)
			return
		}
	}
}

// event draws one row.
func (t *timeline) event(r row) {
	fmt.Fprintf(&t.out, `<g><title>%s</title>`, html.EscapeString(cmp.Or(r.more, r.words)))
	left := t.left(r)
	if r.worker == "" {
		fmt.Fprintf(&t.out, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" class="band"/>`, left-6, r.top-3, t.width-left+2, lineHeight*len(r.lines)+5)
	}
	fmt.Fprintf(&t.out, `<text x="%d" y="%d" class="time">%s</text>`, firstColumn-24, r.top+13, t.since(r.at))
	for i, line := range r.lines {
		fmt.Fprintf(&t.out, `<text x="%d" y="%d">%s</text>`, left, r.top+13+lineHeight*i, html.EscapeString(line))
	}
	if r.write != nil {
		t.write(*r.write, r.top+lineHeight*len(r.lines)+2)
	}
	t.out.WriteString("</g>")
}

// write draws the way of a write to the storage, and what became of it.
func (t *timeline) write(w history.Write, y int) {
	class, words := "fresh", "accepted"
	switch {
	case w.Refused && w.Stale:
		class, words = "refused", "refused: stale token"
	case w.Refused:
		class, words = "refused", "refused"
	case w.Early:
		class, words = "early", "stale, before the claim"
	case w.Stale:
		class, words = "stale", "stale, and accepted"
	}
	from, to := t.x(w.Worker)+7, firstColumn+columnGap*len(t.columns)
	fmt.Fprintf(&t.out, `<path d="M%d %dH%d" class="way %s"/><path d="M%d %dl-7 -4v8z" class="head %s"/><text x="%d" y="%d" class="outcome %s">%s</text>`,
		from, y, to-8, class, to-5, y, class, to-12, y+13, class, words)
	if w.Refused {
		fmt.Fprintf(&t.out, `<path d="M%d %dl10 10m0 -10l-10 10" class="cross"/>`, to-5, y-5)
		return
	}
	fmt.Fprintf(&t.out, `<circle cx="%d" cy="%d" r="5" class="%s"/>`, to, y, class)
}

func (t *timeline) since(at driver.Instant) string {
	return fmt.Sprintf("%.3f s", at.Sub(t.h.Began).Round(time.Millisecond).Seconds())
}

// token is what a token looks like after a word: without the digits that all have.
func (t *timeline) token(token fencing.Token) string {
	if t.h.Tokenless {
		return ""
	}
	digits := fmt.Sprint(token)
	if t.prefix == 0 {
		return ", token " + digits
	}
	return ", token …" + digits[t.prefix:]
}

// samePrefix returns how many digits at the beginning are the same in all tokens, if
// those are long and of one length.
func samePrefix(h *history.History) int {
	var first, last string
	for _, s := range h.Spans {
		digits := fmt.Sprint(s.Token)
		if first == "" {
			first, last = digits, digits
		}
		if len(digits) != len(first) {
			return 0
		}
		first, last = min(first, digits), max(last, digits)
	}
	same := 0
	for same < len(first)-4 && first[same] == last[same] {
		same++
	}
	return same
}
