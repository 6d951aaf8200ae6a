//go:build unix

package process

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Pause stops the program with SIGSTOP, and returns when it stands still. It sees that in
// /proc, which Linux has. SIGCONT has the program go on.
func (p *Process) Pause() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	p.Wait("it stands still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
		_, state, found := strings.Cut(string(stat), ") ")
		return err == nil && found && strings.HasPrefix(state, "T")
	})
}
