package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// mustStay reports whether the lock has to be kept after the end of COMMAND, because
// --min-hold is not over and the store does not keep the lock of a process that ends.
func (c *runCommand) mustStay(h hold) bool {
	if h.store.Guarantees().KeepsMinHold || driver.Now() >= h.granted.Add(c.minHold) {
		return false
	}
	// If the lock was lost while COMMAND ran, the store knows it by now, and giving
	// back says so. COMMAND did not need what is lost from here on.
	ctx, cancel := context.WithTimeout(context.Background(), partingTime)
	defer cancel()
	lost := false
	for _, lock := range h.set.Locks() {
		lost = lost || errors.Is(lock.Renew(ctx), locker.ErrLost)
	}
	return !lost
}

// stay keeps the lock until --min-hold is over or the lock is lost. A signal that asks
// for an end cuts it short, or has done so while COMMAND ran. That is the error: a warning.
func (c *runCommand) stay(h hold, end *signalError, signals <-chan os.Signal) error {
	over := h.granted.Add(c.minHold)
	if isTerminal(os.Stderr) { // a cron job would send a mail each time
		c.remark("keeping %s for another %v (--min-hold)", c.what(), over.Sub(driver.Now()).Round(time.Second))
	}
	for left := over.Sub(driver.Now()); left > 0 && h.set.Err() == nil; left = over.Sub(driver.Now()) {
		if end != nil {
			return fmt.Errorf("warning: others may get %s %v before --min-hold is over: %w", c.what(), left.Round(time.Millisecond), end)
		}
		select {
		case <-time.After(min(left, glance)):
		case <-h.set.Lost():
		case sig := <-signals:
			if slices.Contains(endings, sig) {
				end = &signalError{sig}
			}
		}
	}
	return nil
}

// tooEarly makes a warning of the loss of a lock that COMMAND no longer needed. An end
// that --max-hold has set is none.
func tooEarly(err error) error {
	lost, ok := errors.AsType[*locker.LostError](err)
	switch {
	case !ok:
		return err
	case lost.Reason == locker.ReasonMaxHold:
		return nil
	}
	return fmt.Errorf("warning: others may have got the lock before --min-hold was over: %w", err)
}
