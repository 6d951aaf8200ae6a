package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/open"
)

type runCommand struct {
	backend
	ttl                    time.Duration
	wait, minHold, maxHold time.Duration // 0: not given
	noWait, quiet, shared  bool
	slots                  int // 0: not given
	takenExit              int
	statusFD               int // 0: none

	names    []string
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
	fs.BoolVar(&c.shared, "shared", false, "share the lock with others that share it, as readers do")
	fs.Func("slots", "let `NUMBER` at most hold the lock at the same time; all must ask for the same", number(&c.slots, 1, locker.MaxSlots))
	fs.Func("min-hold", "keep the lock from others for `DURATION`, also if COMMAND ends sooner", positive(&c.minHold))
	fs.Func("max-hold", "end COMMAND so that the lock is held for `DURATION` at most; default for ever", positive(&c.maxHold))
	fs.Func("taken-exit", "exit with `STATUS`, from 0 to 255, if the lock is taken; default 75", number(&c.takenExit, 0, 255))
	fs.Func("status-fd", "write to the open file descriptor `NUMBER` whether the exit status is COMMAND's or locker's", number(&c.statusFD, 1, 1<<20))
	fs.BoolVar(&c.quiet, "quiet", false, "say nothing about waiting and about a lock that is taken")
}

func (c *runCommand) accept(args []string) error {
	first := 0
	if len(args) > 0 && args[0] == "--" { // a NAME may begin with a dash
		first = 1
	}
	end := slices.Index(args[first:], "--") + first
	switch {
	case len(args) == first, end == first, first == 1 && end < first:
		return errors.New("NAME is missing before -- COMMAND")
	case end < first, end == len(args)-1:
		return fmt.Errorf("after NAME (%q) comes -- and then COMMAND", args[first])
	}
	c.names, c.command = args[first:end], args[end+1:]
	if err := c.agree(); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	for _, name := range c.names {
		if _, err := driver.NewRequest(nil, name, c.options()...); err != nil {
			return err
		}
	}
	return c.openStatus()
}

// agree returns an error if flags or names do not go together.
func (c *runCommand) agree() error {
	switch {
	case c.command[0] == "":
		return errors.New("COMMAND is empty")
	case len(c.names) > locker.MaxSet:
		return fmt.Errorf("%d names are over the limit of %d", len(c.names), locker.MaxSet)
	case len(c.names) > 1 && strings.Contains(strings.Join(c.names, ""), "\n"):
		return errors.New("of several names none can have a line end, for COMMAND finds them one a line")
	case c.shared && c.slots > 0:
		return errors.New("--shared and --slots exclude each other")
	case c.minHold > 0 && (c.shared || c.slots > 0):
		return errors.New("--min-hold works with exclusive locks only, and not with --shared or --slots")
	case c.noWait && c.wait > 0:
		return errors.New("--wait and --no-wait exclude each other")
	case c.maxHold > 0 && c.maxHold < locker.MinTTL:
		return fmt.Errorf("--max-hold %v is under the limit of %v: COMMAND would hardly begin", c.maxHold, locker.MinTTL)
	case c.maxHold > 0 && c.minHold > c.maxHold:
		return fmt.Errorf("--min-hold %v is over --max-hold %v", c.minHold, c.maxHold)
	}
	return nil
}

func (c *runCommand) options() []locker.Option {
	opts := []locker.Option{locker.WithTTL(c.ttl)}
	if c.minHold > 0 {
		opts = append(opts, locker.WithMinHold(c.minHold))
	}
	if c.maxHold > 0 {
		opts = append(opts, locker.WithMaxHold(c.maxHold))
	}
	if c.shared {
		opts = append(opts, locker.WithShared())
	}
	if c.slots > 0 {
		opts = append(opts, locker.WithSlots(c.slots))
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
	if c.unsaid(word, err) {
		err = nil
	}
	return status, errors.Join(err, c.tellStatus(word, status))
}

// unsaid reports whether --quiet leaves out an error: one about waiting, or a lock that is taken.
func (c *runCommand) unsaid(word string, err error) bool {
	return c.quiet && (word == "taken" || word == "signal" && errors.As(err, new(*signalError)))
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
	return c.afterWait(h, err, ended, cmd, signals)
}

// afterWait goes on after the wait for the lock, which a signal may have ended: also when the lock
// had just been granted.
func (c *runCommand) afterWait(h hold, err error, ended *signalError, cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	switch {
	case ended != nil && err == nil:
		return ended.status(), h.giveBack()
	case ended != nil && !errors.Is(err, locker.ErrOutcomeUnknown):
		return ended.status(), fmt.Errorf("waiting for %s was %w", c.what(), ended)
	case err != nil:
		return c.notHeld(err)
	}
	return c.runUnder(h, cmd, signals)
}

// what names the locks.
func (c *runCommand) what() string {
	if len(c.names) == 1 {
		return fmt.Sprintf("the lock %q", c.names[0])
	}
	return fmt.Sprintf("the locks %q", c.names)
}

// hold is locks and the store that granted them.
type hold struct {
	store   open.Backend
	set     *locker.Set
	granted driver.Instant // not before the store granted it
}

// acquire gets the lock. With --wait it asks again while the store is silent.
func (c *runCommand) acquire(ctx context.Context) (hold, error) {
	end := driver.Now().Add(c.wait)
	h, err := c.attempt(ctx, c.wait)
	for told := false; c.wait > 0 && mayPass(err) && rest(ctx, end); told = true {
		if !told {
			c.remark("the store is asked again until --wait %v is over: %w", c.wait, err)
		}
		again := error(nil)
		h, again = c.attempt(ctx, end.Sub(driver.Now()))
		if !timeIsUp(again) { // else what was said before tells more
			err = again
		}
	}
	return h, err
}

// runUnder runs the command under the lock and gives the lock back.
func (c *runCommand) runUnder(h hold, cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	if h.set.Err() != nil {
		return exitLost, h.giveBack() // of several locks the others; the error tells the loss
	}
	cmd.Env = environment(os.Environ(), h.set)
	child, err := start(cmd)
	if err != nil {
		status, err := c.cannotStart(err)
		return status, errors.Join(err, h.giveBack())
	}
	s := c.supervise(h.set, child)
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
	err := async.Do(ctx, func() error { return h.set.Unlock(ctx) })
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
	if len(c.names) > 1 {
		return status, fmt.Errorf("%w %s: try again later, or see who has it with \"locker inspect\" and the same -b", err, waited)
	}
	return status, fmt.Errorf("%s is taken %s: try again later, or see who has it with \"locker inspect\" and the same -b", c.what(), waited)
}

// cannotStart explains why there is no child, with the statuses of a shell.
func (c *runCommand) cannotStart(err error) (int, error) {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitNotFound, fmt.Errorf("the command %q was not found: check its name and PATH", c.command[0])
	}
	return exitNotRunnable, fmt.Errorf("the command %q cannot be executed: %w", c.command[0], err)
}
