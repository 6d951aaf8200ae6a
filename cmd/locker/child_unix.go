//go:build unix && !aix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endings are the signals that end a wait and are passed on to the child.
var endings = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// messages are signals that mean what the child makes of them.
var messages = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH}

// inherited returns the file that whoever started us has opened under this number. What
// Go's runtime opens for itself is closed on exec, so it cannot be such a file.
func inherited(number int) (*os.File, error) {
	flags, err := unix.FcntlInt(uintptr(number), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, fmt.Errorf("it is not open: redirect it, as in %d>FILE", number)
	}
	unix.CloseOnExec(number)
	return os.NewFile(uintptr(number), "--status-fd"), nil
}

// child is a process that leads a process group of its own.
type child struct {
	pid       int            // and the group's number
	tty       *terminal      // nil if there is none
	exited    chan int       // its exit status, once
	stopped   chan os.Signal // the terminal stopped it, with this signal
	suspended chan os.Signal // the terminal wants us to stop
	continued chan os.Signal // we were continued
}

// start starts cmd. The calling goroutine must live as long as the process.
func start(cmd *exec.Cmd) (*child, error) {
	runtime.LockOSThread() // the child is killed when the thread that started it ends
	c := &child{
		tty:       ourTerminal(),
		exited:    make(chan int, 1),
		stopped:   make(chan os.Signal, 1),
		suspended: make(chan os.Signal, 1),
		continued: make(chan os.Signal, 1),
	}
	// Before there is a child: what these signals do by default would stop or
	// end us, and leave the child alone.
	signal.Notify(c.continued, syscall.SIGCONT)
	signal.Notify(c.suspended, syscall.SIGTSTP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a message that nobody reads must not end us before the lock is given back
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	c.goOn()
	go c.wait()
	return c, nil
}

// wait reports when the child stops or ends. It takes the place of cmd.Wait, which
// does not report a stop. It waits for any child: orphans become our children where
// we are process 1, and would stay zombies.
func (c *child) wait() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD: no child is left, and there will be no other
			return
		case pid != c.pid:
		case status.Exited():
			c.exited <- status.ExitStatus()
		case status.Signaled():
			c.exited <- exitSignal + int(status.Signal())
		case status.Stopped() && c.tty != nil && status.StopSignal() != syscall.SIGSTOP:
			c.stopped <- status.StopSignal()
		}
	}
}

// pass passes a signal on to the group, and continues it if that is an ending:
// what is stopped does not hear a signal.
func (c *child) pass(sig os.Signal) {
	c.signal(sig)
	if slices.Contains(endings, sig) {
		c.signal(syscall.SIGCONT)
	}
}

// signal sends the group a signal.
func (c *child) signal(sig os.Signal) {
	if s, ok := sig.(syscall.Signal); ok {
		// An error says that there is no group any more, or that it has
		// become another user's: nothing is to be done about either.
		_ = syscall.Kill(-c.pid, s)
	}
}

// terminate asks the group to end.
func (c *child) terminate() { c.pass(syscall.SIGTERM) }

// kill ends the group.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// groupLives reports whether a process of the group is left. No other group gets
// its number as long as there is. A process of another user does not count: it is
// out of reach.
func (c *child) groupLives() bool { return syscall.Kill(-c.pid, 0) == nil }

// goOn gives the terminal to a child that wants it, if it is ours to give, and
// continues the group.
func (c *child) goOn() {
	c.tty.give(c.pid)
	c.signal(syscall.SIGCONT)
}

// stoppedBy is called when the terminal has stopped the child, and reports
// whether it is to go on. One that wants to use the terminal gets it, if it is
// ours to give. Otherwise (^Z) we stop as well, so that the shell takes over, and
// go on when we are continued. The lock may be lost meanwhile.
func (c *child) stoppedBy(sig os.Signal) bool {
	asks := sig != syscall.SIGTSTP
	switch {
	case asks && c.tty.ask(c.pid):
		return true
	case c.tty.withoutShell():
		return !asks
	}
	c.leaveTerminal()
	_ = syscall.Kill(0, syscall.SIGSTOP) // we may always signal ourselves
	select {
	case <-c.continued:
	case <-time.After(glance): // stopped and continued before this line
	}
	return true
}

// leaveTerminal takes the terminal back from the child.
func (c *child) leaveTerminal() { c.tty.take(c.pid) }
