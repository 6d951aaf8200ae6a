// Package observe has observers of locks ([locker.Observer]). [Log] writes what happens to a
// log/slog Logger. For metrics and traces there is the module
// github.com/lockstile/locker/adapters/otellock.
//
//	observed := locker.Observe(locks, observe.Log(slog.Default()))
package observe

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lockstile/locker"
)

// Log returns an observer that writes a line for each event. What everyday locking consists
// of is on the level Debug. A call that got no lock, because somebody else has it or its
// context ended, is on Info. On Warn is what somebody should look at: a store that does not
// answer, renewals that fail or come late, locks that are lost, and events that were missed.
//
// The message is the event's one word, after "lock". Attributes are name, kind, call, token and
// slot where there is one, wait, held, since, left, took (durations), holder, reason (the
// code), error and missed.
func Log(logger *slog.Logger) locker.Observer {
	handler := logger.Handler() // of no logger it panics, here and not in the observer's goroutine
	return func(e locker.Event) {
		ctx, at := context.Background(), level(e)
		if handler.Enabled(ctx, at) {
			r := slog.NewRecord(e.Time, at, "lock "+e.Type.String(), 0)
			r.AddAttrs(attributes(e)...)
			_ = handler.Handle(ctx, r) // there is nobody to tell
		}
	}
}

func level(e locker.Event) slog.Level {
	switch {
	case e.Type == locker.EventRenewedLate, e.Missed > 0:
		return slog.LevelWarn
	case e.Err == nil:
		return slog.LevelDebug
	case e.Type == locker.EventFailed && !errors.Is(e.Err, locker.ErrUnavailable) && !errors.Is(e.Err, locker.ErrOutcomeUnknown):
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// took names what an event's duration is.
var took = map[locker.EventType]string{
	locker.EventGranted: "wait", locker.EventPassed: "wait", locker.EventFailed: "wait",
	locker.EventReleased: "held", locker.EventLost: "held", locker.EventDetached: "held",
	locker.EventNotRenewed: "since", locker.EventRenewedLate: "since",
	locker.EventCleanedUp: "took",
}

func attributes(e locker.Event) []slog.Attr {
	as := []slog.Attr{slog.String("name", e.Name), slog.String("kind", e.Kind.String()), slog.Uint64("call", e.Call)}
	add := func(ok bool, a slog.Attr) {
		if ok {
			as = append(as, a)
		}
	}
	key := took[e.Type]
	add(e.Token != 0, slog.Uint64("token", uint64(e.Token)))
	add(e.SharedToken != 0, slog.Uint64("token", uint64(e.SharedToken)))
	add(e.Slot >= 0, slog.Int("slot", e.Slot))
	add(key != "", slog.Duration(key, e.Took))
	add(key == "since", slog.Duration("left", e.Left))
	add(e.Holder != "", slog.String("holder", e.Holder))
	add(e.Reason != 0, slog.String("reason", e.Reason.Code()))
	add(e.Err != nil, slog.Any("error", e.Err))
	add(e.Missed > 0, slog.Uint64("missed", e.Missed))
	return as
}
