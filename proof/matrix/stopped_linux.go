package matrix

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// awaitStopped waits until all threads of the process have stopped: one that runs on can
// take a lock. If the process answers instead, that is an errNotHeld.
func (w *worker) awaitStopped(answer <-chan report) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		select {
		case r := <-answer:
			return fmt.Errorf("%s: %w: %s", w.Name, errNotHeld, r.Err)
		default:
		}
		stopped, err := allStopped(w.cmd.Process.Pid)
		if stopped || err != nil {
			return err
		}
	}
	return fmt.Errorf("worker %s did not stop", w.Name)
}

func (w *worker) awaitSuspended() error { return w.awaitStopped(nil) }

func allStopped(pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false, fmt.Errorf("process %d is not there to be stopped", pid)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended: it is not running
		}
		// The state is the first field after the name, which is in brackets.
		if i := bytes.LastIndexByte(stat, ')'); i < 0 || !bytes.HasPrefix(stat[i:], []byte(") T")) {
			return false, nil
		}
	}
	return true, nil
}
