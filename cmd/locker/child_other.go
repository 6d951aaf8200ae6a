//go:build !unix || aix

package main

import (
	"errors"
	"os"
	"os/exec"
)

// endings are the signals that end a wait.
var endings = []os.Signal{os.Interrupt}

// messages are signals that are passed on: there are none here.
var messages []os.Signal

// inherited has no files to return here.
func inherited(int) (*os.File, error) {
	return nil, errors.New("this system does not number open files")
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// child is a process. Without process groups, what it has started itself is out
// of reach, and an interrupt reaches it through the console, not through us.
type child struct {
	process   *os.Process
	exited    chan int
	stopped   chan os.Signal // never
	suspended chan os.Signal // never
	continued chan os.Signal // never
}

func start(cmd *exec.Cmd) (*child, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{process: cmd.Process, exited: make(chan int, 1)}
	go func() {
		_ = cmd.Wait() // what it says is in the state
		c.exited <- cmd.ProcessState.ExitCode()
	}()
	return c, nil
}

func (c *child) signal(os.Signal) {}
func (c *child) pass(os.Signal)   {}

// terminate kills, long before the lock ends: there is no gentler way here.
func (c *child) terminate() { c.kill() }

func (c *child) kill() { _ = c.process.Kill() } // an error says that it has ended

func (c *child) groupLives() bool         { return false }
func (c *child) goOn()                    {}
func (c *child) stoppedBy(os.Signal) bool { return false }
func (c *child) leaveTerminal()           {}
