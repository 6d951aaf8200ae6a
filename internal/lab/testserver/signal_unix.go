//go:build unix

package testserver

import "syscall"

// pause stops the process, as a long garbage collection or a suspended machine does.
func (p *process) pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
