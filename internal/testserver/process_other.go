//go:build !linux

package testserver

import "os/exec"

// Other systems have no death signal: a test process that is killed leaves its
// servers behind.
func dieWithParent(*exec.Cmd) {}
