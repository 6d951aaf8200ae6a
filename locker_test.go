package locker

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestReasonsInWords(t *testing.T) {
	for r, want := range map[Reason]string{
		0:                  "unknown reason",
		ReasonExpired:      "its validity ended before it was renewed",
		ReasonTakenOver:    "the store no longer has it under this holder",
		ReasonSessionEnded: "its session ended",
		ReasonUnreachable:  "its validity ended while the store did not answer",
		ReasonForced:       "it was forcibly unlocked",
		ReasonMaxHold:      "it was held for as long as WithMaxHold allows",
		ReasonMaxHold + 1:  "unknown reason",
		255:                "unknown reason",
	} {
		if got := r.String(); got != want {
			t.Errorf("Reason %d reads %q, want %q", uint8(r), got, want)
		}
	}
}

// Dashboards and alerts keep them: a code is never changed.
func TestReasonsHaveCodes(t *testing.T) {
	for r, want := range map[Reason]string{
		0: "unknown", ReasonExpired: "expired", ReasonTakenOver: "taken_over", ReasonSessionEnded: "session_ended", ReasonUnreachable: "unreachable",
		ReasonForced: "forced", ReasonMaxHold: "max_hold", ReasonMaxHold + 1: "unknown", 255: "unknown",
	} {
		if got := r.Code(); got != want {
			t.Errorf("Reason %d has the code %q, want %q", uint8(r), got, want)
		}
	}
}

func TestALostErrorSaysWhichLockAndWhy(t *testing.T) {
	for want, e := range map[string]*LostError{
		`lock "a" lost: its session ended`:                      {Name: "a", Reason: ReasonSessionEnded},
		`lock "a/\n" lost: unknown reason`:                      {Name: "a/\n"},
		`lock "a" lost: it was forcibly unlocked: by the admin`: {Name: "a", Reason: ReasonForced, Cause: errors.New("by the admin")},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestALostErrorIsErrLostAndItsCause(t *testing.T) {
	plain := fmt.Errorf("postgres: renew: %w", &LostError{Name: "a", Reason: ReasonForced})
	caused := fmt.Errorf("postgres: renew: %w", &LostError{Name: "a", Reason: ReasonUnreachable, Cause: context.DeadlineExceeded})
	for _, err := range []error{plain, caused} {
		var lost *LostError
		if !errors.Is(err, ErrLost) || !errors.As(err, &lost) || lost.Name != "a" {
			t.Errorf("%v is no ErrLost of lock a", err)
		}
		for _, other := range []error{ErrTaken, ErrUnavailable, ErrOutcomeUnknown, ErrClosed} {
			if errors.Is(err, other) {
				t.Errorf("%v is also %v", err, other)
			}
		}
	}
	if all := (&LostError{Reason: ReasonForced}).Unwrap(); len(all) != 1 { // package errors allows no nil there
		t.Errorf("without a cause it wraps %v", all)
	}
	if errors.Is(plain, context.DeadlineExceeded) || !errors.Is(caused, context.DeadlineExceeded) {
		t.Error("a cause was invented or forgotten")
	}
}
