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

const runHelp = `
COMMAND finds the lock's name in LOCKER_NAME and its fencing token in
LOCKER_TOKEN. The token is greater than every earlier one of this name: let the
storage refuse writes with a smaller one. COMMAND inherits LOCKER_BACKEND too,
and any password in it, so that a locker inside COMMAND uses the same store;
"locker run NAME -- env -u LOCKER_BACKEND COMMAND" withholds it. The URL of -b is
not passed on.

COMMAND runs in a process group of its own. locker passes SIGINT, SIGTERM, SIGHUP
and SIGQUIT on to the group, and SIGCONT after them, so that a stopped process
hears them; also SIGUSR1, SIGUSR2, SIGALRM and SIGWINCH. If locker was started
with SIGHUP or SIGINT ignored (nohup), COMMAND ignores it too; signals other than
these two that were ignored (trap '' TERM) are not ignored by COMMAND.

If the lock cannot be renewed, the group gets SIGTERM before the lock ends, and
SIGKILL just before it does. SIGTERM comes a quarter of the TTL before the end
(on ZooKeeper a quarter of its session), but five seconds at most, and with
--max-hold a quarter of that at most. If the lock is gone already, for example
because the machine was suspended, SIGTERM comes at once and SIGKILL a second
later.
Once SIGTERM was sent the exit status is 70, whatever becomes of the lock.
COMMAND has the terminal from the start if its input and output are terminals,
otherwise once it asks for it. ^Z stops locker along with it, and the lock may be
lost meanwhile.

As a container's first process, locker reaps orphaned processes. Under systemd,
set KillMode=mixed: by default systemd sends SIGTERM to every process of a
service, so COMMAND would get it twice, once from locker, and some programs take
the second for an order to end at once. Windows has no signals: ^C reaches COMMAND
through the console, and where it would get SIGTERM it is killed, without what it
has started.

What COMMAND leaves running in the background when it exits goes on without the
lock. A process that leaves the group, or becomes another user's (sudo), cannot
be ended. If locker itself is killed, COMMAND is killed too on Linux, but not what
COMMAND has started; on other systems both go on. The token protects against all
of these.
`

type runCommand struct {
	backend
	ttl     time.Duration
	wait    time.Duration // 0: for ever
	noWait  bool
	maxHold time.Duration // 0: for ever

	name    string
	command []string
}

func (c *runCommand) flags(fs flagSet) {
	c.backend.flags(fs)
	fs.ttl(&c.ttl)
	fs.Func("wait", "wait for the lock for `DURATION` at most; default for ever", positive(&c.wait))
	fs.BoolVar(&c.noWait, "no-wait", false, "do not wait for the lock at all")
	fs.Func("max-hold", "end COMMAND so that the lock is held for `DURATION` at most; default for ever", positive(&c.maxHold))
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
	}
	c.name, c.command = args[0], args[2:]
	if err := c.check(); err != nil {
		return err
	}
	_, err := locker.NewRequest(c.name, c.options()...)
	return err
}

func (c *runCommand) options() []locker.Option {
	opts := []locker.Option{locker.WithTTL(c.ttl)}
	if c.maxHold > 0 {
		opts = append(opts, locker.WithMaxHold(c.maxHold))
	}
	return opts
}

// do waits for the lock, runs the command under it, and gives it back.
func (c *runCommand) do() (int, error) {
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
	store open.Backend
	lock  *locker.Lock
}

func (c *runCommand) acquire(ctx context.Context) (hold, error) {
	store, err := c.connect(ctx)
	if err != nil {
		return hold{}, err
	}
	lock, err := c.lockFrom(ctx, store)
	if err != nil {
		return hold{}, errors.Join(err, shut(store))
	}
	return hold{store, lock}, nil
}

func (c *runCommand) lockFrom(ctx context.Context, store open.Backend) (*locker.Lock, error) {
	switch {
	case c.noWait:
		return store.TryLock(ctx, c.name, c.options()...)
	case c.wait == 0:
		return store.Lock(ctx, c.name, c.options()...)
	}
	waiting, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	lock, err := store.Lock(waiting, c.name, c.options()...)
	if err != nil && waiting.Err() != nil && statusOf(err) == exitUsage { // the time was up before the store was asked
		return store.TryLock(ctx, c.name, c.options()...)
	}
	return lock, err
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
	err = h.giveBack()
	switch {
	case s.lost != nil:
		return exitLost, fmt.Errorf("%q was ended, because its lock was lost: %w", c.command[0], s.lost)
	case errors.Is(err, locker.ErrLost):
		s.end(err) // what the command has left behind
		s.sweep()
		return exitLost, fmt.Errorf("the last part of %q ran without its lock: %w", c.command[0], err)
	}
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
