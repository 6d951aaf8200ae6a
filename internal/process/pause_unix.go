//go:build unix

package process

import (
	"syscall"

	"github.com/lockstile/locker/internal/testserver"
)

// Pause stops the program with SIGSTOP, and returns when it stands still, where the system
// tells. SIGCONT has the program go on.
func (p *Process) Pause() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	if err := testserver.AwaitStopped(p.Cmd.Process.Pid); err != nil {
		p.t.Fatalf("waiting until the program stands still: %v", err)
	}
}
