//go:build !linux

package matrix

import "errors"

// stopMyself cannot be done reliably here, and [worker.awaitStopped] says so.
func stopMyself() {}

func (w *worker) awaitStopped(<-chan report) error {
	return errors.New("this system does not say whether a process is stopped")
}

// awaitSuspended does not wait: this system does not say when the signal has arrived.
func (w *worker) awaitSuspended() error { return nil }
