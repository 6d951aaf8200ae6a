package matrix

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker"
)

// The measures of a timeline, in pixels of its own coordinates; it scales.
const (
	laneHeight = 34
	laneTop    = 26
	leftEdge   = 46
	timeWidth  = 620
	rightEdge  = 14
)

// timeline draws a history as SVG: a lane for each worker with its spans, a dashed line
// for each mark, a dot for each write.
type timeline struct {
	h     *History
	lanes []string
	out   strings.Builder
}

// Timeline returns the history as an SVG image.
func (h *History) Timeline() string {
	t := &timeline{h: h}
	for _, s := range h.Spans {
		t.lane(s.Worker)
	}
	for _, w := range h.Writes {
		t.lane(w.Worker)
	}
	height := laneTop + laneHeight*(len(t.lanes)+1) + 18
	fmt.Fprintf(&t.out, `<svg viewBox="0 0 %d %d" role="img" xmlns="http://www.w3.org/2000/svg">`, leftEdge+timeWidth+rightEdge, height)
	t.marks(height - 18)
	for i, name := range t.lanes {
		fmt.Fprintf(&t.out, `<text x="4" y="%d" class="who">%s</text>`, t.y(i)+14, html.EscapeString(name))
	}
	fmt.Fprintf(&t.out, `<text x="4" y="%d" class="who">store</text>`, t.y(len(t.lanes))+14)
	for _, s := range h.Spans {
		t.span(s)
	}
	for _, w := range h.Writes {
		t.write(w)
	}
	fmt.Fprintf(&t.out, `<text x="%d" y="%d" class="time">0</text><text x="%d" y="%d" class="time" text-anchor="end">%s</text></svg>`,
		leftEdge, height-3, leftEdge+timeWidth, height-3, h.Ended.Sub(h.Began).Round(time.Millisecond))
	return t.out.String()
}

// lane returns the lane of a worker, which it makes if there is none yet.
func (t *timeline) lane(worker string) int {
	if i := slices.Index(t.lanes, worker); i >= 0 {
		return i
	}
	t.lanes = append(t.lanes, worker)
	return len(t.lanes) - 1
}

func (t *timeline) y(lane int) int { return laneTop + laneHeight*lane }

func (t *timeline) x(at locker.Instant) float64 {
	whole := t.h.Ended.Sub(t.h.Began)
	return leftEdge + timeWidth*float64(at.Sub(t.h.Began))/float64(max(whole, 1))
}

// marks draws the marks, each with its number in the list below the image.
func (t *timeline) marks(bottom int) {
	var last float64
	row := 0
	for i, m := range t.h.Marks {
		x := t.x(m.At)
		if row = (row + 1) % 2; x-last > 16 {
			row = 0
		}
		last = x
		fmt.Fprintf(&t.out, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" class="mark"/><text x="%.1f" y="%d" class="number" text-anchor="middle">%d<title>%s</title></text>`,
			x, x, laneTop-4, bottom, x, 10+9*row, i+1, html.EscapeString(m.Text))
	}
}

func (t *timeline) span(s Span) {
	from, until := t.x(s.From), t.x(t.h.end(s))
	width := max(until-from, 1.5)
	fmt.Fprintf(&t.out, `<rect x="%.1f" y="%d" width="%.1f" height="18" rx="2" class="span"><title>%s believes from %v to %v, %s. %s</title></rect>`,
		from, t.y(t.lane(s.Worker)), width, html.EscapeString(s.Worker),
		s.From.Sub(t.h.Began).Round(time.Millisecond), t.h.end(s).Sub(t.h.Began).Round(time.Millisecond), t.h.token(s.Token), html.EscapeString(s.End))
	if width > 30 && !t.h.Tokenless {
		fmt.Fprintf(&t.out, `<text x="%.1f" y="%d" class="token">…%03d</text>`, from+3, t.y(t.lane(s.Worker))+13, s.Token%1000)
	}
}

func (t *timeline) write(w Write) {
	class := "fresh"
	switch {
	case w.Refused:
		class = "refused"
	case w.Early:
		class = "early"
	case w.Stale:
		class = "stale"
	}
	x, y := t.x(w.At), t.y(len(t.lanes))+9
	fmt.Fprintf(&t.out, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" class="arrow %s"/><circle cx="%.1f" cy="%d" r="5" class="%s"><title>%s writes with %s at %v: %s</title></circle>`,
		x, x, t.y(t.lane(w.Worker))+18, y-5, class, x, y, class, html.EscapeString(w.Worker), t.h.token(w.Token), w.At.Sub(t.h.Began).Round(time.Millisecond), t.h.outcome(w))
	if w.Refused {
		fmt.Fprintf(&t.out, `<path d="M%.1f %d l6 6 m0 -6 l-6 6" class="cross"/>`, x-3, y-3)
	}
}
