package main

import (
	"errors"

	"github.com/lockstile/locker"
)

// Exit statuses, those of sysexits.h and of shells. "run" exits with its
// command's own status when none of these says more.
const (
	exitUsage       = 64
	exitUnavailable = 69
	exitLost        = 70
	exitTaken       = 75
	exitNotRunnable = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the signal's number
)

// statusOf is the exit status for an error of a backend. An error that says
// nothing of a store came before one was asked.
func statusOf(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, locker.ErrUnavailable), errors.Is(err, locker.ErrOutcomeUnknown):
		return exitUnavailable
	case errors.Is(err, locker.ErrTaken):
		return exitTaken
	case errors.Is(err, locker.ErrLost):
		return exitLost
	}
	return exitUsage
}
