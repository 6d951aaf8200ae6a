package matrix

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker"
)

// Tale is the history in words, a line for each event in the order of time. A nil
// History has none.
func (h *History) Tale() string {
	if h == nil {
		return ""
	}
	type event struct {
		at   locker.Instant
		text string
	}
	var events []event
	for _, m := range h.Marks {
		events = append(events, event{m.At, m.Text})
	}
	for _, s := range h.Spans {
		events = append(events, event{s.From, fmt.Sprintf("%s is granted the lock with token %d", s.Worker, s.Token)})
		if s.Until != 0 {
			events = append(events, event{s.Until, fmt.Sprintf("%s no longer believes that it holds it with token %d: %s", s.Worker, s.Token, s.End)})
		}
	}
	for _, w := range h.Writes {
		events = append(events, event{w.At, fmt.Sprintf("%s writes with token %d (stale: %v, refused by the guard: %v)", w.Worker, w.Token, w.Stale, w.Refused)})
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%10v  %s\n", e.at.Sub(h.Began).Round(time.Millisecond), e.text)
	}
	return b.String()
}
