//go:build unix && !aix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is our controlling terminal. Only its foreground group may read from
// it, and the signals of its keys go there. A nil terminal does nothing.
type terminal struct {
	tty *os.File
	own int // our process group

	// wanted says that the child is to be in the foreground: from the start
	// if both its input and its output are terminals, else once it has asked.
	// In a pipeline another program may need the keys, a pager for example.
	wanted bool
}

// ourTerminal returns the terminal, if we have one.
func ourTerminal() *terminal {
	own, err := unix.Getpgid(0)
	if err != nil {
		return nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{tty: tty, own: own, wanted: isTerminal(os.Stdin) && isTerminal(os.Stdout)}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// foreground is the group in the foreground, or -1 if the system does not say.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// give puts group into the foreground, if it wants to be there and we are.
func (t *terminal) give(group int) {
	if t != nil && t.wanted && t.foreground() == t.own {
		t.set(group)
	}
}

// ask is give for a group that was stopped because it is not in the foreground.
// It reports whether it is there now.
func (t *terminal) ask(group int) bool {
	t.wanted = true
	t.give(group)
	return t.foreground() == group
}

// withoutShell reports whether our group is the one with which the session began:
// then no shell watches over us that could continue what was stopped.
func (t *terminal) withoutShell() bool {
	session, err := unix.Getsid(0)
	return err == nil && session == t.own
}

// take puts our group into the foreground in place of group. SIGTTOU is ignored,
// because it would stop us for doing so from the background; the child runs by now
// and does not inherit that.
func (t *terminal) take(group int) {
	if t != nil && t.foreground() == group {
		signal.Ignore(syscall.SIGTTOU)
		t.set(t.own)
	}
}

// set may fail where the terminal has hung up; the child then finds out itself.
func (t *terminal) set(group int) {
	_ = unix.IoctlSetPointerInt(int(t.tty.Fd()), unix.TIOCSPGRP, group)
}
