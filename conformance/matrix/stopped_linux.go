package matrix

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// awaitStopped waits until the process has stopped itself.
func (w *Worker) awaitStopped() error {
	path := fmt.Sprintf("/proc/%d/stat", w.cmd.Process.Pid)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// The state is the first field after the name, which is in brackets.
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && bytes.HasPrefix(stat[i:], []byte(") T")) {
			return nil
		}
	}
	return fmt.Errorf("worker %s did not stop", w.Name)
}
