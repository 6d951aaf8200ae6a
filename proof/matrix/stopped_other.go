//go:build !linux

package matrix

import "errors"

// stopMyself cannot be done reliably here, and [Worker.awaitStopped] says so.
func stopMyself() {}

func (w *Worker) awaitStopped(<-chan report) error {
	return errors.New("this system does not say whether a process is stopped")
}

// awaitSuspended does not wait: this system does not say when the signal has arrived.
func (w *Worker) awaitSuspended() error { return nil }
