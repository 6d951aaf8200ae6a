//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
)

// An error may say several things. What is not known outranks what is.
func TestEachErrorHasItsStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
	}{
		{nil, 0},
		{locker.ErrUnavailable, 69},
		{locker.ErrOutcomeUnknown, 69},
		{fmt.Errorf("%w: %w", locker.ErrUnavailable, locker.ErrRefused), 77},
		{fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, locker.ErrRefused), 69}, // it may be held
		{locker.ErrTaken, 75},
		{locker.ErrLost, 70},
		{errOutput, 74},
		{errors.New("no such scheme"), 64},
		{fmt.Errorf("%w: %w", locker.ErrTaken, locker.ErrOutcomeUnknown), 69},
		{errors.Join(locker.ErrLost, locker.ErrTaken), 75},
	} {
		if got := statusOf(c.err); got != c.status {
			t.Errorf("%v: status %d, want %d", c.err, got, c.status)
		}
	}
	for status, want := range map[int]string{64: "usage", 69: "unavailable", 70: "lost", 75: "taken", 77: "refused", 126: "not-started", 127: "not-started", 143: "signal"} {
		if got := wordOf(status); got != want {
			t.Errorf("the word of %d is %q, want %q", status, got, want)
		}
	}
}

// What was heard of the lock decides, and not only the last word.
func TestOnlyAStoreThatIsSilentIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		errs   []error
		again  bool
		timeUp bool
	}{
		{nil, false, false},
		{[]error{locker.ErrUnavailable}, true, false},
		{[]error{locker.ErrOutcomeUnknown}, true, false},
		{[]error{locker.ErrTaken}, false, false},
		{[]error{locker.ErrUnavailable, context.DeadlineExceeded}, true, true},
		{[]error{locker.ErrOutcomeUnknown, context.DeadlineExceeded}, true, false}, // which says more
		{[]error{locker.ErrTaken, locker.ErrUnavailable, context.DeadlineExceeded}, false, false},
		{[]error{locker.ErrTaken, context.DeadlineExceeded}, false, false},
	} {
		err := errors.Join(c.errs...)
		if mayPass(err) != c.again || timeIsUp(err) != c.timeUp {
			t.Errorf("%v: asking again may help: %v, the time is up: %v", err, mayPass(err), timeIsUp(err))
		}
	}
}

func TestLockThatIsNotHeldIsExplained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		run    wanted
		err    error
		status int
		want   string
	}{
		{wanted{ttl: time.Minute}, locker.ErrOutcomeUnknown, 69, "may stay locked, by nobody, for up to 1m0s (--ttl)"},
		{wanted{wait: time.Minute}, locker.ErrUnavailable, 69, "it was asked for 1m0s (--wait)"},
		{wanted{}, locker.ErrUnavailable, 69, locker.ErrUnavailable.Error()},
		{wanted{names: []string{"x"}}, locker.ErrTaken, 75, `the lock "x" is taken (--no-wait)`},
		{wanted{names: []string{"x"}, wait: time.Minute, who: "me"}, locker.ErrTaken, 75, `the lock "x" is taken and stayed so for 1m0s (--wait): me`},
		{wanted{names: []string{"x", "y"}}, fmt.Errorf("lock %q: %w", "y", locker.ErrTaken), 75, `lock "y": taken by another holder (--no-wait)`},
	} {
		if status, err := c.run.notHeld(hold{}, c.err, nil); status != c.status || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: status %d, %v; want %q", c.err, status, err, c.want)
		}
	}
}

// The signal says why the wait ended, and not whether the lock is held.
func TestSignalDoesNotHideThatTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	c := &wanted{ttl: time.Minute, names: []string{"x"}}
	status, err := c.notHeld(hold{}, locker.ErrOutcomeUnknown, &signalError{os.Interrupt})
	if status != 69 || !errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("status %d, %v", status, err)
	}
	status, err = c.notHeld(hold{}, locker.ErrTaken, &signalError{os.Interrupt})
	if status != 128+2 || !strings.Contains(err.Error(), `waiting for the lock "x"`) {
		t.Errorf("status %d, %v", status, err)
	}
}

func TestQuietLeavesOutOnlyWhatConcernsTheWait(t *testing.T) {
	t.Parallel()
	quiet, loud := &runCommand{wanted: wanted{backend: &backend{quiet: true}}}, &runCommand{wanted: wanted{backend: new(backend)}}
	ended := fmt.Errorf("waiting was %w", &signalError{os.Interrupt})
	for _, c := range []struct {
		word   string
		err    error
		unsaid bool
	}{
		{"taken", locker.ErrTaken, true},
		{"signal", ended, true},
		{"signal", errors.New("warning: the lock could not be given back"), false},
		{"unavailable", errors.Join(ended, locker.ErrOutcomeUnknown), false},
		{"command", errors.New("warning: others may get the lock"), false},
		{"lost", locker.ErrLost, false},
	} {
		if got := quiet.unsaid(c.word, c.err); got != c.unsaid {
			t.Errorf("%s, %v: left out is %v", c.word, c.err, got)
		}
		if loud.unsaid(c.word, c.err) {
			t.Errorf("%s, %v: it was not told to be quiet", c.word, c.err)
		}
	}
}
