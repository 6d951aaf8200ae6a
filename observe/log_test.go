package observe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
	"github.com/lockstile/locker/observe"
)

// plain leaves out of a line what differs from run to run.
func plain(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey, "call", "wait", "held":
		return slog.Attr{}
	}
	return a
}

func Example() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: plain}))
	backend := lockertest.New()
	locks := locker.Observe(backend, observe.Log(logger))
	err := locker.Do(context.Background(), locks, "invoices/42", func(context.Context, *locker.Lock) error { return nil })
	if err != nil {
		fmt.Println(err)
	}
	_ = backend.Close() // waits for the last lines
	// Output:
	// level=DEBUG msg="lock granted" name=invoices/42 kind=exclusive token=1
	// level=DEBUG msg="lock released" name=invoices/42 kind=exclusive token=1
}

func TestLinesSayWhatHappened(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	of := locker.Event{Name: "a", Call: 7, Slot: -1, Time: now, Took: time.Second}
	for want, change := range map[string]func(e *locker.Event){
		`level=DEBUG msg="lock waiting" name=a kind=exclusive call=7 holder="process 1 on b"`: func(e *locker.Event) {
			e.Type, e.Holder = locker.EventWaiting, "process 1 on b"
		},
		`level=DEBUG msg="lock granted" name=a kind=slots call=7 token=5 slot=0 wait=1s`: func(e *locker.Event) {
			e.Type, e.Token, e.Kind, e.Slot = locker.EventGranted, 5, locker.KindSlots, 0
		},
		`level=DEBUG msg="lock passed" name=a kind=exclusive call=7 token=5 wait=1s`: func(e *locker.Event) {
			e.Type, e.Token = locker.EventPassed, 5
		},
		`level=INFO msg="lock failed" name=a kind=exclusive call=7 wait=1s error="taken by another holder"`: func(e *locker.Event) {
			e.Type, e.Err = locker.EventFailed, locker.ErrTaken
		},
		`level=WARN msg="lock failed" name=a kind=exclusive call=7 wait=1s error="lock store unavailable"`: func(e *locker.Event) {
			e.Type, e.Err = locker.EventFailed, locker.ErrUnavailable
		},
		`level=WARN msg="lock failed" name=a kind=exclusive call=7 wait=1s error="outcome unknown: taken by another holder"`: func(e *locker.Event) {
			e.Type, e.Err = locker.EventFailed, fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, locker.ErrTaken)
		},
		`level=WARN msg="lock not_renewed" name=a kind=exclusive call=7 token=5 since=1s left=2s error=no`: func(e *locker.Event) {
			e.Type, e.Token, e.Left, e.Err = locker.EventNotRenewed, 5, 2*time.Second, errors.New("no")
		},
		`level=WARN msg="lock renewed_late" name=a kind=shared call=7 token=5 since=1s left=2s`: func(e *locker.Event) {
			e.Type, e.Token, e.Left, e.Kind = locker.EventRenewedLate, 5, 2*time.Second, locker.KindShared
		},
		`level=WARN msg="lock lost" name=a kind=exclusive call=7 token=5 held=1s reason=max_hold error="lock lost"`: func(e *locker.Event) {
			e.Type, e.Token, e.Reason, e.Err = locker.EventLost, 5, locker.ReasonMaxHold, locker.ErrLost
		},
		`level=WARN msg="lock released" name=a kind=exclusive call=7 token=5 held=1s missed=3`: func(e *locker.Event) {
			e.Type, e.Token, e.Missed = locker.EventReleased, 5, 3
		},
		`level=WARN msg="lock cleaned_up" name=a kind=exclusive call=7 took=1s error="outcome unknown"`: func(e *locker.Event) {
			e.Type, e.Err = locker.EventCleanedUp, locker.ErrOutcomeUnknown
		},
	} {
		var line bytes.Buffer
		e := of
		change(&e)
		observe.Log(slog.New(slog.NewTextHandler(&line, &slog.HandlerOptions{Level: slog.LevelDebug})))(e)
		if got := strings.TrimSuffix(line.String(), "\n"); got != "time=2026-01-02T03:04:05.000Z "+want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestLinesBelowTheLevelAreNotWritten(t *testing.T) {
	var lines bytes.Buffer
	observe.Log(slog.New(slog.NewTextHandler(&lines, nil)))(locker.Event{Type: locker.EventGranted})
	if lines.Len() > 0 {
		t.Error(lines.String())
	}
}

// Later it would be a panic in a goroutine of the observer's, which nobody sees.
func TestNoLoggerIsADefectThatShowsAtOnce(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an observer that logs nowhere")
		}
	}()
	observe.Log(nil)
}
