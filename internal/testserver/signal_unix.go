//go:build unix

package testserver

import "syscall"

// pause stops the process, as a long garbage collection or a suspended machine does. It
// returns when a child stands still, where the system tells.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return AwaitStopped(p.cmd.Process.Pid)
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
