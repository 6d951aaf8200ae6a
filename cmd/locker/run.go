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

var runCommand = command{
	name:  "run",
	form:  "NAME -- COMMAND [ARG…]",
	about: "run COMMAND while holding the lock NAME",
	more: `
COMMAND finds the lock's name in LOCKER_NAME and its fencing token in
LOCKER_TOKEN, greater than every earlier one of this name: have the storage
refuse writes with a smaller one. LOCKER_BACKEND, and with it a password that it
may hold, is passed on if it is set: a locker inside COMMAND must not fall back
to another store. "locker run NAME -- env -u LOCKER_BACKEND COMMAND" keeps it
from COMMAND. The URL of -b is not passed on.

COMMAND runs in a process group of its own. SIGINT, SIGTERM, SIGHUP and SIGQUIT
are passed on to it, with SIGCONT, without which a stopped one would not hear
them; so are SIGUSR1, SIGUSR2, SIGALRM and SIGWINCH. A SIGHUP or SIGINT that
locker was started to ignore (nohup) is ignored by COMMAND too; others that were
ignored (trap '' TERM) are not.

If renewals of the lock fail, the group is sent SIGTERM a quarter of the TTL, or
of the ZooKeeper session that stands for it (five seconds at most; with
--max-hold, a quarter of that at most) before the lock ends, and SIGKILL just
before it does. If the lock is gone already, as after a suspended machine wakes
up, it is SIGTERM at once and SIGKILL a second later. Once SIGTERM was sent the
exit status is 70, whatever becomes of the lock. COMMAND has the terminal if its
input and output are one, and else once it asks for it; ^Z stops locker along
with it, and the lock may be lost meanwhile.

As a container's first process, locker reaps what its descendants leave. Under
systemd, set KillMode=mixed: by default systemd sends SIGTERM to every process of
a service, so COMMAND would get it twice, once from locker, and some programs
take the second for "at once". Windows has no signals: ^C reaches COMMAND through
the console, and where it would be sent SIGTERM it is killed, without what it
has started.

What COMMAND leaves running in the background when it exits is not ended with
the lock: such a process runs without it. A process that leaves the group, or
becomes another user's (sudo), cannot be ended. On Linux COMMAND is killed when
locker is killed, but not what COMMAND has started itself; elsewhere not even
COMMAND. The token protects against all of these.
`,
	takes: takesNameAndCommand,
	flags: []string{"b", "ttl", "wait", "no-wait", "max-hold"},
	do:    run,
}

func run(in invocation) (int, error) {
	if _, err := locker.NewRequest(in.name, in.options()...); err != nil {
		return exitUsage, err // before anybody is asked
	}
	cmd := exec.Command(in.command[0], in.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if cmd.Err != nil {
		return cannotStart(in, cmd.Err)
	}
	signals := catch()
	var h hold
	var err error
	ended := until(signals, func(ctx context.Context) { h, err = acquire(ctx, in) })
	switch {
	case ended != nil && err == nil:
		return ended.status(), h.giveBack()
	case ended != nil && !errors.Is(err, locker.ErrOutcomeUnknown):
		return ended.status(), fmt.Errorf("waiting for the lock %q was %w", in.name, ended)
	case err != nil:
		return notHeld(in, err)
	}
	return h.run(in, cmd, signals)
}

// hold is a lock and where it came from.
type hold struct {
	backend open.Backend
	lock    *locker.Lock
}

func acquire(ctx context.Context, in invocation) (hold, error) {
	b, err := connect(ctx, in)
	if err != nil {
		return hold{}, err
	}
	lock, err := lockFrom(ctx, in, b)
	if err != nil {
		return hold{}, errors.Join(err, shut(b))
	}
	return hold{b, lock}, nil
}

func lockFrom(ctx context.Context, in invocation, b open.Backend) (*locker.Lock, error) {
	if in.wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, in.wait)
		defer cancel()
		lock, err := b.Lock(waiting, in.name, in.options()...)
		if err == nil || waiting.Err() == nil || statusOf(err) != exitUsage {
			return lock, err
		}
		in.noWait = true // it was over before the store was asked
	}
	if in.noWait {
		return b.TryLock(ctx, in.name, in.options()...)
	}
	return b.Lock(ctx, in.name, in.options()...)
}

func (in invocation) options() []locker.Option {
	opts := []locker.Option{locker.WithTTL(in.ttl)}
	if in.maxHold > 0 {
		opts = append(opts, locker.WithMaxHold(in.maxHold))
	}
	return opts
}

// notHeld explains why there is no lock.
func notHeld(in invocation, err error) (int, error) {
	status := statusOf(err)
	switch {
	case errors.Is(err, locker.ErrOutcomeUnknown):
		return status, fmt.Errorf("%w; the name may stay locked, by nobody, for up to %v (--ttl)", err, in.ttl)
	case status != exitTaken:
		return status, err
	}
	waited := "(--no-wait)"
	if in.wait > 0 {
		waited = fmt.Sprintf("and stayed so for %v (--wait)", in.wait)
	}
	return status, fmt.Errorf("the lock %q is taken %s: try again later, or see who has it with \"locker inspect\"", in.name, waited)
}

// cannotStart explains why there is no child, with the statuses of a shell.
func cannotStart(in invocation, err error) (int, error) {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitNotFound, fmt.Errorf("the command %q was not found: check its name and PATH", in.command[0])
	}
	return exitNotRunnable, fmt.Errorf("the command %q cannot be executed: %w", in.command[0], err)
}

// run runs the command under the lock and gives the lock back.
func (h hold) run(in invocation, cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	if err := h.lock.Err(); err != nil {
		return exitLost, errors.Join(err, shut(h.backend))
	}
	cmd.Env = append(os.Environ(), "LOCKER_NAME="+in.name, "LOCKER_TOKEN="+h.lock.Token().String())
	child, err := start(cmd)
	if err != nil {
		status, err := cannotStart(in, err)
		return status, errors.Join(err, h.giveBack())
	}
	s := newSupervisor(h.lock, child, in)
	status := s.watch(signals)
	err = h.giveBack()
	switch {
	case s.lost != nil:
		return exitLost, fmt.Errorf("%q was ended, for its lock was lost: %w", in.command[0], s.lost)
	case errors.Is(err, locker.ErrLost):
		s.end(err) // what the command has left behind
		s.sweep()
		return exitLost, fmt.Errorf("the last part of %q ran without its lock: %w", in.command[0], err)
	}
	return status, err
}

// partingTime bounds what a store that hangs can hold up at the end.
const partingTime = 3 * time.Second

// giveBack unlocks and closes. The errors say what is to be told.
func (h hold) giveBack() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), partingTime, fmt.Errorf("no answer within %v", partingTime))
	defer cancel()
	err := within(ctx, func() error { return h.lock.Unlock(ctx) })
	if err != nil && !errors.Is(err, locker.ErrLost) {
		err = fmt.Errorf("warning: the lock could not be given back and stays taken until it ends by itself: %w", err)
	}
	cerr := within(ctx, h.backend.Close)
	if ctx.Err() != nil {
		cerr = nil // the process ends, and with it what is open
	}
	return errors.Join(err, cerr)
}

// shut closes a backend that nothing is held of.
func shut(b open.Backend) error {
	ctx, cancel := context.WithTimeout(context.Background(), partingTime)
	defer cancel()
	err := within(ctx, b.Close)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// within calls f and returns at the end of ctx, whether f has or not.
func within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
