package otellock

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockstile/locker"
)

// mostSets bounds what is kept of attributes: a function for names that returns a text of
// its own for each of a million names costs time, and no memory here.
const mostSets = 10_000

// observe is the observer. The context says nothing, for a measurement belongs to no request.
func (m *metrics) observe(e locker.Event) {
	label := ""
	if m.label != nil {
		label = strings.ToValidUTF8(m.label(e.Name), "\uFFFD") // Prometheus refuses a whole page for one name that was cut within a letter
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.sets[series{label: label}]; !known {
		m.begin(label)
	}
	if e.Missed > 0 {
		m.missed.Add(context.Background(), int64(e.Missed))
		m.forget()
	}
	m.measure(e, label)
}

func (m *metrics) measure(e locker.Event, label string) {
	ctx, kind := context.Background(), e.Kind.String()
	switch e.Type {
	case locker.EventWaiting:
		m.enter(e.Call, call{m.waiting, m.with(series{label: label, kind: kind})})
	case locker.EventGranted:
		m.wait.Record(ctx, e.Took.Seconds(), m.with(series{label: label, kind: kind, how: "store"}))
		m.enter(e.Call, call{m.held, m.with(series{label: label, kind: kind})})
	case locker.EventPassed:
		m.wait.Record(ctx, e.Took.Seconds(), m.with(series{label: label, kind: kind, how: "memory"}))
		m.enter(e.Call, call{m.held, m.with(series{label: label, kind: kind})})
	case locker.EventFailed:
		m.leave(e.Call)
		m.failed.Add(ctx, 1, m.with(series{label: label, operation: "lock", class: failure(e.Err)}))
	case locker.EventNotRenewed:
		m.enter(e.Call, call{m.held, m.with(series{label: label, kind: kind})})
		m.notRenewed.Add(ctx, 1, m.with(series{label: label}))
	case locker.EventRenewedLate:
		m.enter(e.Call, call{m.held, m.with(series{label: label, kind: kind})})
		m.renewedLate.Add(ctx, 1, m.with(series{label: label}))
	case locker.EventLost:
		m.leave(e.Call)
		m.hold.Record(ctx, e.Took.Seconds(), m.with(series{label: label, kind: kind}))
		m.lost.Add(ctx, 1, m.with(series{label: label, reason: e.Reason.Code()}))
	case locker.EventReleased, locker.EventDetached:
		m.leave(e.Call)
		m.hold.Record(ctx, e.Took.Seconds(), m.with(series{label: label, kind: kind}))
		if e.Err != nil {
			m.failed.Add(ctx, 1, m.with(series{label: label, operation: "unlock", class: class(e.Err)}))
		}
	case locker.EventCleanedUp:
		m.cleanedUp.Add(ctx, 1, m.with(series{label: label, class: class(e.Err)}))
	}
}

// enter counts a call where it is now, and no longer where it was.
func (m *metrics) enter(id uint64, now call) {
	m.leave(id)
	m.calls[id] = now
	now.in.Add(context.Background(), 1, now.set)
}

func (m *metrics) leave(id uint64) {
	if was, known := m.calls[id]; known {
		was.in.Add(context.Background(), -1, was.set)
		delete(m.calls, id)
	}
}

// forget counts none of the calls under way any more: one of them may have ended in the
// events that were missed, and would be counted until the program ends.
func (m *metrics) forget() {
	for id := range m.calls {
		m.leave(id)
	}
}

// begin makes the counters of what is rare, at zero: Prometheus does not see that a counter
// has grown if it begins with one.
func (m *metrics) begin(label string) {
	ctx := context.Background()
	for reason := locker.ReasonExpired; reason <= locker.ReasonMaxHold; reason++ {
		m.lost.Add(ctx, 0, m.with(series{label: label, reason: reason.Code()}))
	}
	for _, c := range classes {
		m.failed.Add(ctx, 0, m.with(series{label: label, operation: "lock", class: c.word}))
	}
	m.notRenewed.Add(ctx, 0, m.with(series{label: label}))
	m.renewedLate.Add(ctx, 0, m.with(series{label: label}))
	m.cleanedUp.Add(ctx, 0, m.with(series{label: label}))
	m.missed.Add(ctx, 0)
}

// with returns attributes, which it makes once.
func (m *metrics) with(s series) metric.MeasurementOption {
	if made, ok := m.sets[s]; ok {
		return made
	}
	var attributes []attribute.KeyValue
	for _, a := range [...]struct{ key, value string }{
		{"lockstile.name", s.label}, {"lockstile.kind", s.kind}, {"lockstile.how", s.how},
		{"lockstile.operation", s.operation}, {"error.type", s.class}, {"lockstile.reason", s.reason},
	} {
		if a.value != "" {
			attributes = append(attributes, attribute.String(a.key, a.value))
		}
	}
	if len(m.sets) >= mostSets {
		clear(m.sets)
	}
	m.sets[s] = metric.WithAttributeSet(attribute.NewSet(attributes...))
	return m.sets[s]
}

// classes are what callers tell errors by. An unknown outcome may come with another, and
// outranks it; a refusal comes with ErrUnavailable.
var classes = [...]struct {
	err  error
	word string
}{
	{locker.ErrOutcomeUnknown, "outcome_unknown"},
	{locker.ErrTaken, "taken"},
	{locker.ErrMismatch, "mismatch"},
	{locker.ErrRefused, "refused"},
	{locker.ErrUnavailable, "unavailable"},
	{locker.ErrClosed, "closed"},
	{locker.ErrLost, "lost"},
	{locker.ErrUnlocked, "unlocked"},
}

// class is the attribute error.type: one word, which never changes, or "" without an error.
func class(err error) string {
	if err == nil {
		return ""
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.word
		}
	}
	return "other"
}

// failure is the attribute error.type of a call of Lock or TryLock. The Locker says what it knows
// of the store first, or that the context had ended before the store was asked. Behind that comes
// the cause of the context, which is its user's: it may be another lock's [locker.ErrTaken], and
// says nothing about this one.
func failure(err error) string {
	said := sentinels(nil, err)
	switch {
	case len(said) == 0:
		return class(err)
	case len(said) > 1 && said[0] == "unavailable" && said[1] == "refused":
		return "refused"
	}
	return said[0]
}

// sentinels appends the words of the classes that err wraps, in the order of its text. The end of
// a context is "other", and stands before its cause.
func sentinels(said []string, err error) []string {
	switch wraps := any(err).(type) {
	case interface{ Unwrap() error }:
		return sentinels(said, wraps.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range wraps.Unwrap() {
			said = sentinels(said, part)
		}
		return said
	}
	if word := class(err); err != nil && (word != "other" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		said = append(said, word)
	}
	return said
}
