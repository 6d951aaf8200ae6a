//go:build unix && !aix

package main

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the one on stdin. Only its foreground group may read from it, and
// the signals of its keys go there. A nil terminal does nothing.
type terminal struct{ own int } // our process group

// ourTerminal returns the terminal if our group is in its foreground.
func ourTerminal() *terminal {
	own, err := unix.Getpgid(0)
	t := &terminal{own}
	if err != nil || t.foreground() != own {
		return nil
	}
	return t
}

// foreground is the group in the foreground, or -1 if stdin is no terminal.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// give puts group into the foreground in place of ours.
func (t *terminal) give(group int) {
	if t != nil && t.foreground() == t.own {
		t.set(group)
	}
}

// take puts our group into the foreground in place of group. From the background
// that would stop us, were the signal not ignored; the child has been started by
// now and does not inherit it.
func (t *terminal) take(group int) {
	if t != nil && t.foreground() == group {
		signal.Ignore(syscall.SIGTTOU)
		t.set(t.own)
	}
}

// set may fail where the terminal has hung up; the child then finds out itself.
func (t *terminal) set(group int) { _ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group) }
