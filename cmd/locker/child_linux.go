package main

import "syscall"

// dieWithParent has the kernel kill the child when we die, however we do: it
// must not go on with nobody to watch the lock.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
