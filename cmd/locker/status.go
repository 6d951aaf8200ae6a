package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/async"
)

// Exit statuses, those of sysexits.h and of shells. "run" exits with its
// command's own status when none of these says more.
const (
	exitBroken      = 1 // a promise was seen broken, by "bench", or can be, by "doctor"
	exitUsage       = 64
	exitUnavailable = 69
	exitLost        = 70
	exitOutput      = 74
	exitTaken       = 75
	exitRefused     = 77
	exitNotRunnable = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the signal's number
)

// exit is the end of a command whose error, if there is one, does not tell the status.
type exit struct {
	status int
	says   error // nil: nothing is to be said
}

func (e exit) Error() string {
	if e.says == nil {
		return ""
	}
	return e.says.Error()
}

func (e exit) Unwrap() error { return e.says }

// statusOf is the exit status for the error of a command. One of no kind that is known
// here came before a store was asked.
func statusOf(err error) int {
	var own exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own.status
	case errors.Is(err, locker.ErrRefused) && !errors.Is(err, locker.ErrOutcomeUnknown):
		return exitRefused
	case errors.Is(err, locker.ErrUnavailable), errors.Is(err, locker.ErrOutcomeUnknown):
		return exitUnavailable
	case errors.Is(err, locker.ErrTaken):
		return exitTaken
	case errors.Is(err, locker.ErrLost):
		return exitLost
	case errors.Is(err, errOutput):
		return exitOutput
	case errors.Is(err, errBroken):
		return exitBroken
	}
	return exitUsage
}

var statusWords = map[int]string{
	exitUsage:       "usage",
	exitUnavailable: "unavailable",
	exitLost:        "lost",
	exitTaken:       "taken",
	exitRefused:     "refused",
	exitNotRunnable: "not-started",
	exitNotFound:    "not-started",
}

// wordOf says in a word what an exit status of "run" that is not COMMAND's own means.
func wordOf(status int) string { return cmp.Or(statusWords[status], "signal") }

// openStatus takes over the file for --status-fd, early, so that nothing else can get
// its number. COMMAND does not inherit it.
func (c *runCommand) openStatus() (err error) {
	if c.statusFD > 0 {
		if c.statusTo, err = inherited(c.statusFD); err != nil {
			return fmt.Errorf("--status-fd %d: %w", c.statusFD, err)
		}
	}
	return nil
}

// tellStatus writes whose the exit status is to --status-fd.
func (c *runCommand) tellStatus(word string, status int) error {
	if c.statusTo == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), partingTime, fmt.Errorf("it took nothing for %v", partingTime))
	defer cancel()
	err := async.Do(ctx, func() error { _, err := fmt.Fprintf(c.statusTo, "%s %d\n", word, status); return err })
	if err != nil {
		return fmt.Errorf("--status-fd %d: %w", c.statusFD, err)
	}
	return nil
}

// errOutput means that stdout did not take what was written.
var errOutput = errors.New("the output could not be written")

// answer prints what a command was asked for.
func answer(text string) error {
	_, err := os.Stdout.WriteString(text)
	return output(err)
}

// answerJSON prints what a command was asked for as one line of JSON.
func answerJSON(v any) error { return output(json.NewEncoder(os.Stdout).Encode(v)) }

// tell prints what a command was asked for, for programs or for people.
func tell(asJSON bool, v any, text string) error {
	if asJSON {
		return answerJSON(v)
	}
	return answer(text)
}

// output is how a command ends whose writing to stdout ended with err. A script
// must not take half an answer for a whole one.
func output(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", errOutput, err)
	}
	return err
}
