//go:build !linux

package matrix

import "errors"

// stopMyself cannot be done reliably here, and [Worker.awaitStopped] says so.
func stopMyself() {}

func (w *Worker) awaitStopped() error {
	return errors.New("this system does not tell whether a process is stopped")
}

// awaitSuspended cannot tell: a signal takes a moment here.
func (w *Worker) awaitSuspended() error { return nil }
