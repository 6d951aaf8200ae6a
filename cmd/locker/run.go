package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockstile/locker"
)

type runCommand struct {
	wanted
	minHold, maxHold time.Duration // 0: not given
	shared           bool
	slots            int // 0: not given
	takenExit        int
	statusFD         int // 0: none

	command  []string
	statusTo *os.File
	own      bool // the exit status is COMMAND's
}

func (c *runCommand) flags() []cli.Flag {
	return append([]cli.Flag{
		durationFlag("ttl", "if locker is killed, a store with leases frees the lock after `DURATION` at most;\n\t\"local:\" frees it at once", &c.ttl, locker.DefaultTTL),
		boolFlag("shared", "share the lock with others that share it, as readers do", &c.shared),
		numberFlag("slots", "let `NUMBER` at most hold the lock at the same time; all must ask for the same", &c.slots, 1, locker.MaxSlots, 0),
		durationFlag("min-hold", "keep the lock from others for `DURATION`, also if COMMAND ends sooner", &c.minHold, 0),
		durationFlag("max-hold", "end COMMAND so that the lock is held for `DURATION` at most; default: for ever", &c.maxHold, 0),
		numberFlag("taken-exit", "exit with `STATUS`, from 0 to 255, if the lock is taken", &c.takenExit, 0, 255, exitTaken),
		numberFlag("status-fd", "write to the open file descriptor `NUMBER` whether the exit status is COMMAND's or locker's", &c.statusFD, 1, 1<<20, 0),
	}, c.wanted.flags()...)
}

func (c *runCommand) accept(args []string) error {
	if len(args) > 0 && args[0] == "--" && slices.Contains(args[1:], "--") { // a NAME may begin with a dash
		args = args[1:]
	}
	end := slices.Index(args, "--")
	switch {
	case len(args) == 0, end == 0:
		return errors.New("NAME is missing before -- COMMAND")
	case end < 0, end == len(args)-1:
		return fmt.Errorf("after NAME (%q) comes -- and then COMMAND", args[0])
	}
	c.names, c.command = args[:end], args[end+1:]
	if err := c.agree(); err != nil {
		return err
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
	case c.maxHold > 0 && c.maxHold < locker.MinTTL:
		return fmt.Errorf("--max-hold %v is under the limit of %v: COMMAND would hardly begin", c.maxHold, locker.MinTTL)
	case c.maxHold > 0 && c.minHold > c.maxHold:
		return fmt.Errorf("--min-hold %v is over --max-hold %v", c.minHold, c.maxHold)
	}
	c.more = c.kindAndHold()
	return c.wanted.agree()
}

// kindAndHold are the options that only this command has.
func (c *runCommand) kindAndHold() (opts []locker.Option) {
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
func (c *runCommand) do() error {
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
	return exit{status, errors.Join(err, c.tellStatus(word, status))}
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
	h, status, err := c.get(signals)
	if h.store == nil {
		return status, err
	}
	return c.runUnder(h, cmd, signals)
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

// environment is outer, with the names and the numbers of the locks. Nothing stays of a locker around
// this one: its token would be taken for ours.
func environment(outer []string, set *locker.Set) []string {
	values := make(map[string][]string)
	add := func(name, value string) { values[name] = append(values[name], value) }
	for _, lock := range set.Locks() {
		add("LOCKER_NAME", lock.Name())
		if number := lock.SharedToken(); number != 0 {
			add("LOCKER_SHARED_TOKEN", number.String())
		} else {
			add("LOCKER_TOKEN", lock.Token().String())
		}
		if slot := lock.Slot(); slot >= 0 {
			add("LOCKER_SLOT", strconv.Itoa(slot))
		}
	}
	env := slices.DeleteFunc(slices.Clone(outer), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.Contains([]string{"LOCKER_NAME", "LOCKER_TOKEN", "LOCKER_SHARED_TOKEN", "LOCKER_SLOT"}, strings.TrimSuffix(name, "S"))
	})
	for name, lines := range values {
		if len(lines) > 1 {
			name += "S"
		}
		env = append(env, name+"="+strings.Join(lines, "\n"))
	}
	return env
}

// cannotStart explains why there is no child, with the statuses of a shell.
func (c *runCommand) cannotStart(err error) (int, error) {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitNotFound, fmt.Errorf("the command %q was not found: check its name and PATH", c.command[0])
	}
	return exitNotRunnable, fmt.Errorf("the command %q cannot be executed: %w", c.command[0], err)
}
