package locker

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestReasonsInWords(t *testing.T) {
	for r, want := range map[Reason]string{
		0:            "unknown reason",
		Expired:      "its validity ended before it was renewed",
		TakenOver:    "the store no longer has it under this holder",
		SessionEnded: "its session ended",
		Unreachable:  "its validity ended while the store did not answer",
		Forced:       "it was forcibly unlocked",
		MaxHold:      "it was held for as long as WithMaxHold allows",
		Unlocked:     "it was unlocked",
		Unlocked + 1: "unknown reason",
		255:          "unknown reason",
	} {
		if got := r.String(); got != want {
			t.Errorf("Reason %d reads %q, want %q", uint8(r), got, want)
		}
	}
}

// Dashboards and alerts keep them: a code is never changed.
func TestReasonsHaveCodes(t *testing.T) {
	for r, want := range map[Reason]string{
		0: "unknown", Expired: "expired", TakenOver: "taken_over", SessionEnded: "session_ended", Unreachable: "unreachable",
		Forced: "forced", MaxHold: "max_hold", Unlocked: "unlocked", Unlocked + 1: "unknown", 255: "unknown",
	} {
		if got := r.Code(); got != want {
			t.Errorf("Reason %d has the code %q, want %q", uint8(r), got, want)
		}
	}
}

func TestALostErrorSaysWhichLockAndWhy(t *testing.T) {
	for want, e := range map[string]*LostError{
		`lock "a" lost: its session ended`:                       {Name: "a", Reason: SessionEnded},
		`lock "a/\n" lost: unknown reason`:                       {Name: "a/\n"},
		`lock "a" lost: it was forcibly unlocked: by the admin`:  {Name: "a", Reason: Forced, Cause: errors.New("by the admin")},
		`lock "a" is not held: it was unlocked`:                  {Name: "a", Reason: Unlocked},
		`lock "a" is not held: it was unlocked: in another life`: {Name: "a", Reason: Unlocked, Cause: errors.New("in another life")},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestALostErrorIsErrLostAndItsCause(t *testing.T) {
	plain := fmt.Errorf("postgres: renew: %w", &LostError{Name: "a", Reason: Forced})
	caused := fmt.Errorf("postgres: renew: %w", &LostError{Name: "a", Reason: Unreachable, Cause: context.DeadlineExceeded})
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
	if all := (&LostError{Reason: Forced}).Unwrap(); len(all) != 1 { // package errors allows no nil there
		t.Errorf("without a cause it wraps %v", all)
	}
	if errors.Is(plain, context.DeadlineExceeded) || !errors.Is(caused, context.DeadlineExceeded) {
		t.Error("a cause was invented or forgotten")
	}
}
