package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// Text returns the history in words: a line for each event, in the order of time. That
// of a nil History is empty.
func (h *History) Text() string {
	if h == nil {
		return ""
	}
	type event struct {
		at   driver.Instant
		text string
	}
	var events []event
	for _, m := range h.Marks {
		events = append(events, event{m.At, h.MarkText(m)})
	}
	for _, s := range h.Spans {
		events = append(events, event{s.From, fmt.Sprintf("%s is granted the lock with %s", s.Worker, h.TokenText(s.Token))})
		if s.Claimed != 0 && slices.ContainsFunc(h.Writes, Write.TooEarly) { // otherwise nothing depends on when
			events = append(events, event{s.Claimed, s.Worker + " has claimed the storage"})
		}
		if s.Until != 0 {
			events = append(events, event{s.Until, fmt.Sprintf("%s no longer believes that it holds it with %s: %s", s.Worker, h.TokenText(s.Token), s.End)})
		}
	}
	for _, w := range h.Writes {
		events = append(events, event{w.At, fmt.Sprintf("%s %ss%s with %s: %s", w.Worker, w.Verb(), w.Object(), h.TokenText(w.Token), h.Outcome(w))})
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%10v  %s\n", e.at.Sub(h.Began).Round(time.Millisecond), e.text)
	}
	return b.String()
}

// MarkText is what a mark says, and how often that came.
func (h *History) MarkText(m Mark) string {
	if m.Times <= 1 {
		return m.Text
	}
	return fmt.Sprintf("%s (%d times, until %v)", m.Text, m.Times, m.Last.Sub(h.Began).Round(time.Millisecond))
}

// Verb is what the storage was asked for.
func (w Write) Verb() string {
	if w.Shared {
		return "read"
	}
	return "write"
}

// Object says in words which element a write adds.
func (w Write) Object() string {
	if w.Adds {
		return fmt.Sprintf(" element %d", w.Value)
	}
	return ""
}

// Outcome says in words what became of a write.
func (h *History) Outcome(w Write) string {
	const late = "stale, for somebody else has been granted the lock since; "
	switch {
	case w.Refused && w.Stale:
		return late + "the guard refuses it"
	case w.Refused:
		return "in turn, and the guard refuses it"
	case w.Early:
		return late + "no guard could refuse it, for that holder has not claimed the storage yet"
	case w.Stale && h.Tokenless:
		return late + "there is no token to refuse it by"
	case w.Stale:
		return late + "IT IS TAKEN"
	}
	return "in turn"
}

// TokenText says a token in words, or what there is where a lock has none.
func (h *History) TokenText(t fencing.Token) string {
	if h.Tokenless {
		return fmt.Sprintf("no token, its grant %d", t)
	}
	return fmt.Sprintf("token %d", t)
}
