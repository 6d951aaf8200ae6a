package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/lockstile/locker/internal/async"
)

// signalError ends a wait.
type signalError struct{ sig os.Signal }

func (e signalError) Error() string { return fmt.Sprintf("ended by a signal (%v)", e.sig) }

func (e signalError) status() int {
	if n, ok := e.sig.(syscall.Signal); ok {
		return exitSignal + int(n)
	}
	return exitSignal
}

// catch returns a channel of the signals that end locker, or are passed on. A
// SIGHUP or SIGINT that was ignored from the start, as nohup does, stays ignored,
// by the child too. Of other signals it is not known: Go's runtime has taken them
// over by now.
func catch() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	for _, s := range slices.Concat(endings, messages) {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	return signals
}

// until calls f with a context that ends with the first of signals that is an
// ending, and returns that signal if it came before f returned. Messages that come
// meanwhile are dropped.
func until(signals <-chan os.Signal, f func(context.Context)) (ended *signalError) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	call := async.Start(func() (none any, err error) { f(ctx); return none, err })
	note := func(s os.Signal) {
		if ended == nil && slices.Contains(endings, s) {
			ended = &signalError{s}
			cancel(ended)
		}
	}
	for {
		select {
		case s := <-signals:
			note(s)
		case <-call.Ended():
			for len(signals) > 0 { // what came before the child is not for it
				note(<-signals)
			}
			return ended
		}
	}
}
