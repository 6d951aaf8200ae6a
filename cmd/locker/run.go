package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

type runCommand struct {
	backend
	ttl                    time.Duration
	wait, minHold, maxHold time.Duration // 0: not given
	noWait, quiet          bool
	takenExit              int
	statusFD               int // 0: none

	name     string
	command  []string
	statusTo *os.File
	own      bool // the exit status is COMMAND's
}

func (c *runCommand) flags(fs flagSet) {
	c.takenExit = exitTaken
	c.backend.flags(fs)
	fs.ttl(&c.ttl)
	fs.Func("wait", "wait for the lock for `DURATION` at most, and meanwhile ask a store again that\ncannot be reached; default: wait for ever, but not for a store", positive(&c.wait))
	fs.BoolVar(&c.noWait, "no-wait", false, "do not wait for the lock at all")
	fs.Func("min-hold", "keep the lock from others for `DURATION`, also if COMMAND ends sooner", positive(&c.minHold))
	fs.Func("max-hold", "end COMMAND so that the lock is held for `DURATION` at most; default for ever", positive(&c.maxHold))
	fs.Func("taken-exit", "exit with `STATUS`, from 0 to 255, if the lock is taken; default 75", number(&c.takenExit, 0, 255))
	fs.Func("status-fd", "write whose the exit status is to the open file descriptor `NUMBER`", number(&c.statusFD, 1, 1<<20))
	fs.BoolVar(&c.quiet, "quiet", false, "say nothing about waiting and about a lock that is taken")
}

func (c *runCommand) accept(args []string) error {
	if len(args) > 0 && args[0] == "--" { // NAME may begin with a dash
		if args = args[1:]; len(args) < 2 || args[1] != "--" {
			return errors.New("NAME is missing before -- COMMAND")
		}
	}
	switch {
	case len(args) == 0:
		return errors.New("NAME is missing")
	case len(args) < 3 || args[1] != "--":
		return fmt.Errorf("after NAME (%q) comes -- and then COMMAND", args[0])
	case args[2] == "":
		return errors.New("COMMAND is empty")
	case c.noWait && c.wait > 0:
		return errors.New("--wait and --no-wait exclude each other")
	case c.maxHold > 0 && c.maxHold < locker.MinTTL:
		return fmt.Errorf("--max-hold %v is under the limit of %v: it counts from before the store is asked, so nothing would be left", c.maxHold, locker.MinTTL)
	case c.maxHold > 0 && c.minHold > c.maxHold:
		return fmt.Errorf("--min-hold %v is over --max-hold %v", c.minHold, c.maxHold)
	}
	c.name, c.command = args[0], args[2:]
	if err := c.check(); err != nil {
		return err
	}
	if _, err := locker.NewRequest(c.name, c.options()...); err != nil {
		return err
	}
	return c.openStatus()
}

func (c *runCommand) options() []locker.Option {
	opts := []locker.Option{locker.WithTTL(c.ttl)}
	if c.minHold > 0 {
		opts = append(opts, locker.WithMinHold(c.minHold))
	}
	if c.maxHold > 0 {
		opts = append(opts, locker.WithMaxHold(c.maxHold))
	}
	return opts
}

// do runs the command under the lock, and tells --status-fd how that ended.
func (c *runCommand) do() (int, error) {
	status, err := c.run()
	word := wordOf(status)
	switch {
	case c.own:
		word = "command"
	case status == exitTaken:
		status = c.takenExit
	}
	if c.quiet && (word == "taken" || word == "signal" && errors.As(err, new(*signalError))) {
		err = nil
	}
	return status, errors.Join(err, c.tellStatus(word, status))
}

// run waits for the lock, runs the command under it, and gives it back.
func (c *runCommand) run() (int, error) {
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if cmd.Err != nil {
		return c.cannotStart(cmd.Err)
	}
	signals := catch()
	var h hold
	var err error
	ended := until(signals, func(ctx context.Context) { h, err = c.acquire(ctx) })
	switch {
	case ended != nil && err == nil:
		return ended.status(), h.giveBack()
	case ended != nil && !errors.Is(err, locker.ErrOutcomeUnknown):
		return ended.status(), fmt.Errorf("waiting for the lock %q was %w", c.name, ended)
	case err != nil:
		return c.notHeld(err)
	}
	return c.runUnder(h, cmd, signals)
}

// hold is a lock and the store that granted it.
type hold struct {
	store   open.Backend
	lock    *locker.Lock
	granted locker.Instant // not before the store granted it
}

// acquire gets the lock. With --wait it asks again while the store is silent.
func (c *runCommand) acquire(ctx context.Context) (hold, error) {
	end := locker.Now().Add(c.wait)
	h, err := c.attempt(ctx, c.wait)
	for told := false; c.wait > 0 && mayPass(err) && rest(ctx, end); told = true {
		if !told {
			c.remark("the store is asked again until --wait %v is over: %w", c.wait, err)
		}
		again := error(nil)
		h, again = c.attempt(ctx, end.Sub(locker.Now()))
		if !timeIsUp(again) { // else what was said before tells more
			err = again
		}
	}
	return h, err
}

// runUnder runs the command under the lock and gives the lock back.
func (c *runCommand) runUnder(h hold, cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	if err := h.lock.Err(); err != nil {
		return exitLost, errors.Join(err, shut(h.store))
	}
	cmd.Env = append(os.Environ(), "LOCKER_NAME="+c.name, "LOCKER_TOKEN="+h.lock.Token().String())
	child, err := start(cmd)
	if err != nil {
		status, err := c.cannotStart(err)
		return status, errors.Join(err, h.giveBack())
	}
	s := c.supervise(h.lock, child)
	status := s.watch(signals)
	stayed, cut := s.lost == nil && c.mustStay(h), error(nil)
	if stayed {
		cut = c.stay(h, s.signal, signals)
	}
	err = h.giveBack()
	switch {
	case s.lost != nil:
		return exitLost, fmt.Errorf("%q was ended, because its lock was lost: %w", c.command[0], s.lost)
	case stayed:
		err = errors.Join(cut, tooEarly(err))
	case errors.Is(err, locker.ErrLost):
		s.end(err) // what the command has left behind
		s.sweep()
		return exitLost, fmt.Errorf("the last part of %q ran without its lock: %w", c.command[0], err)
	}
	c.own = true
	return status, err
}

// giveBack unlocks and closes. Its errors are for the user.
func (h hold) giveBack() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), partingTime, fmt.Errorf("no answer within %v", partingTime))
	defer cancel()
	err := within(ctx, func() error { return h.lock.Unlock(ctx) })
	if err != nil && !errors.Is(err, locker.ErrLost) {
		err = fmt.Errorf("warning: the lock could not be given back and stays taken until it ends by itself: %w", err)
	}
	return errors.Join(err, closeWithin(ctx, h.store))
}

// notHeld explains why there is no lock.
func (c *runCommand) notHeld(err error) (int, error) {
	status := statusOf(err)
	switch {
	case errors.Is(err, locker.ErrOutcomeUnknown):
		return status, fmt.Errorf("%w; the name may stay locked, by nobody, for up to %v (--ttl)", err, c.ttl)
	case c.wait > 0 && mayPass(err):
		return status, fmt.Errorf("%w; it was asked for %v (--wait)", err, c.wait)
	case status != exitTaken:
		return status, err
	}
	waited := "(--no-wait)"
	if c.wait > 0 {
		waited = fmt.Sprintf("and stayed so for %v (--wait)", c.wait)
	}
	return status, fmt.Errorf("the lock %q is taken %s: try again later, or see who has it with \"locker inspect\"", c.name, waited)
}

// cannotStart explains why there is no child, with the statuses of a shell.
func (c *runCommand) cannotStart(err error) (int, error) {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitNotFound, fmt.Errorf("the command %q was not found: check its name and PATH", c.command[0])
	}
	return exitNotRunnable, fmt.Errorf("the command %q cannot be executed: %w", c.command[0], err)
}
