//go:build unix && !aix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// endings are the signals that end a wait and are passed on to the child.
var endings = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// child is a process that leads a process group of its own.
type child struct {
	pid       int            // and the group's number
	tty       *terminal      // nil if stdin is none, or not ours to give
	exited    chan int       // its exit status, once
	stopped   chan struct{}  // the terminal stopped it
	continued chan os.Signal // we were continued
}

// start starts cmd. The calling goroutine must live as long as the process.
func start(cmd *exec.Cmd) (*child, error) {
	runtime.LockOSThread() // the child is killed when the thread that started it ends
	c := &child{
		tty:       ourTerminal(),
		exited:    make(chan int, 1),
		stopped:   make(chan struct{}, 1),
		continued: make(chan os.Signal, 1),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	signal.Notify(c.continued, syscall.SIGCONT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a message that nobody reads must not end us before the lock is given back
	c.goOn()
	go c.wait()
	return c, nil
}

// wait tells how the child fares. It waits by itself, for os/exec does not tell
// of a child that was stopped.
func (c *child) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			c.exited <- exitSignal // somebody else has waited for it; how it ended is not known
			return
		case status.Exited():
			c.exited <- status.ExitStatus()
			return
		case status.Signaled():
			c.exited <- exitSignal + int(status.Signal())
			return
		case status.Stopped() && c.tty != nil && status.StopSignal() != syscall.SIGSTOP:
			c.stopped <- struct{}{}
		}
	}
}

// signal passes a signal on to the group.
func (c *child) signal(sig os.Signal) {
	if s, ok := sig.(syscall.Signal); ok {
		// An error says that there is no group any more, or that it has
		// become another user's: nothing is to be done about either.
		_ = syscall.Kill(-c.pid, s)
	}
}

// terminate asks the group to end. A stopped process hears it when it goes on.
func (c *child) terminate() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

// kill ends the group.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// groupLives reports whether anything is left of the group. Its number is not
// given to another group as long as there is. What belongs to another user does
// not count: it is out of reach.
func (c *child) groupLives() bool { return syscall.Kill(-c.pid, 0) == nil }

// goOn gives the terminal to the child, if it is ours to give, and continues the
// group: it may have been stopped for want of the terminal.
func (c *child) goOn() {
	c.tty.give(c.pid)
	c.signal(syscall.SIGCONT)
}

// stopAlong stops us too when the terminal has stopped the child (^Z), so that
// the shell takes over. It returns when we are continued; where nobody could do
// that, the system does not stop us either. The lock may be lost meanwhile.
func (c *child) stopAlong() {
	c.leaveTerminal()
	_ = syscall.Kill(0, syscall.SIGTSTP) // we may always signal ourselves
	select {
	case <-c.continued:
	case <-time.After(glance):
	}
}

// leaveTerminal takes the terminal back from the child.
func (c *child) leaveTerminal() { c.tty.take(c.pid) }
