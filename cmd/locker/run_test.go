//go:build unix

package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lockstile/locker/internal/testserver"
)

// redisURL is that of a Redis server of the test's own.
func redisURL(t *testing.T) string {
	t.Helper()
	return "redis://" + testserver.Redis(t).Addr()
}

// report is a child that tells what it got and goes on until its stdin ends.
const report = `echo "name $LOCKER_NAME"; echo "token $LOCKER_TOKEN"; read x; echo over`

func TestCommandFindsNameAndGreaterTokensInItsEnvironment(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	var last uint64
	for range 3 {
		p := launchWith(t, []string{"LOCKER_TOKEN=99999999999999999", "LOCKER_NAME=outer"}, "run", "-b", url, "a name/x", "--", "sh", "-c", report)
		if name := p.word("name"); name != "a name/x" {
			t.Errorf("LOCKER_NAME is %q", name)
		}
		token := p.number("token")
		if token <= last || token == 99999999999999999 {
			t.Errorf("LOCKER_TOKEN is %d after %d", token, last)
		}
		last = token
		p.goOn()
		p.ends(0)
	}
}

func TestExitStatusIsThatOfTheCommand(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "exit 75": 75, "exit 255": 255, "kill -9 $$": 128 + 9, "kill -15 $$": 128 + 15} {
		launch(t, "run", "-b", url, "x", "--", "sh", "-c", script).ends(want)
	}
	free(t, url, "x")
}

// free expects that nobody holds name.
func free(t *testing.T, url, name string) {
	t.Helper()
	p := launch(t, "inspect", "-b", url, "--", name)
	p.ends(0)
	if p.word("held:") != "no" {
		t.Errorf("%q is held: %s", name, p.out)
	}
}

func TestCommandThatCannotBeStartedHasTheStatusOfAShell(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	dir := t.TempDir()
	plain, lost := filepath.Join(dir, "plain"), filepath.Join(dir, "lost")
	writeFile(t, plain, "true\n", 0o600)
	writeFile(t, lost, "#!"+dir+"/no-such-interpreter\n", 0o700)
	for command, want := range map[string]int{"no-such-command": 127, "/no/such/command": 127, lost: 127, plain: 126, dir: 126} {
		launch(t, "run", "-b", url, "x", "--", command).complains(want, "the command", command)
	}
	free(t, url, "x")
}

// Nobody waits for a lock for a command that is not there.
func TestCommandThatIsNotThereIsFoundOutBeforeTheWait(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	launch(t, "run", "-b", url, "x", "--", "no-such-command").complains(127, "no-such-command")
	holder.goOn()
	holder.ends(0)
}

func TestCommandHasOurInputOutputAndErrors(t *testing.T) {
	t.Parallel()
	p := launch(t, "run", "-b", "local:"+t.TempDir(), "x", "--", "sh", "-c", "read a; echo out-$a; echo err-$a >&2")
	if _, err := p.in.Write([]byte("said\n")); err != nil {
		t.Fatal(err)
	}
	p.finishes(0)
	p.out.ends()
	p.errs.ends()
	if p.out.String() != "out-said\n" || p.errs.String() != "err-said\n" {
		t.Errorf("on stdout there is %q, and on stderr %q", p.out, p.errs)
	}
}

func writeFile(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestTakenLockIsStatus75(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	launch(t, "run", "-b", url, "--no-wait", "x", "--", "echo", "ran").complains(75, `the lock "x" is taken`, "--no-wait")
	late := launch(t, "run", "-b", url, "--wait", "300ms", "x", "--", "echo", "ran")
	late.complains(75, `the lock "x" is taken`, "300ms")
	if late.out.String() != "" {
		t.Errorf("a command ran without the lock: %s", late.out)
	}
	launch(t, "run", "-b", url, "--no-wait", "other", "--", "true").ends(0)
	holder.goOn()
	holder.ends(0)
}

// A wait that is over before the store was asked is none: like --no-wait, it
// finds out whether the lock is taken.
func TestShortestWaitTellsATakenLockFromAFreeOne(t *testing.T) {
	t.Parallel()
	for _, url := range []string{redisURL(t), "local:" + t.TempDir()} {
		holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
		holder.word("token")
		late := launch(t, "run", "-b", url, "--wait", "1ns", "x", "--", "echo", "ran")
		late.complains(75, `the lock "x" is taken`, "1ns")
		if late.out.String() != "" {
			t.Errorf("a command ran without the lock: %s", late.out)
		}
		holder.goOn()
		holder.ends(0)
		launch(t, "run", "-b", url, "--wait", "1ns", "x", "--", "true").ends(0)
	}
}

func TestLongestMaxHoldIsHeld(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "--max-hold", "2562047h47m16.854775807s", "x", "--", "sh", "-c", report)
	holder.word("token")
	holder.goOn()
	holder.ends(0)
}

func TestWaiterGetsTheLockWhenTheHolderEnds(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	first := holder.number("token")
	waiter := launch(t, "run", "-b", url, "--wait", "10m", "x", "--", "sh", "-c", report)
	awaitWaiters(t, url, "x", "1")
	if out := waiter.out.String(); out != "" {
		t.Errorf("it did not wait: %s", out)
	}
	holder.goOn()
	holder.ends(0)
	waiter.followsAndEnds(first)
}

// awaitWaiters waits until the store knows of so many waiters.
func awaitWaiters(t *testing.T, url, name, count string) {
	t.Helper()
	waitFor(t, "a waiter", func() bool {
		p := launch(t, "inspect", "-b", url, name)
		p.ends(0)
		return p.word("waiters:") == count
	})
}

func TestSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		waiter := launch(t, "run", "-b", url, "x", "--", "echo", "ran")
		awaitWaiters(t, url, "x", "1")
		waiter.signal(sig)
		waiter.complains(128+int(sig), `waiting for the lock "x"`, sig.String())
		if waiter.out.String() != "" {
			t.Errorf("it ran: %s", waiter.out)
		}
		awaitWaiters(t, url, "x", "0")
	}
	holder.goOn()
	holder.ends(0)
}

// heed has children heed a signal though this test was told to ignore it, as
// nohup does: what is caught is not ignored by those that are started meanwhile.
func heed(t *testing.T, sig os.Signal) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, sig)
	t.Cleanup(func() { signal.Stop(caught) })
}

func TestSignalsArePassedOnToTheCommand(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		heed(t, sig)
		p := launch(t, "run", "-b", url, "x", "--", "sh", "-c", `exec 2>/dev/null; trap 'echo caught; exit 5' INT TERM HUP QUIT; echo up; while :; do sleep 0.05; done`)
		p.says("up")
		p.signal(sig)
		p.ends(5)
		p.says("caught")
	}
	p := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	p.word("token")
	p.signal(syscall.SIGTERM)
	p.ends(128 + int(syscall.SIGTERM))
	free(t, url, "x")
}

// SIGTERM comes last, so whoever ends with it has outlived the others. Of signals that come at once
// Go delivers the smallest number first: only SIGWINCH may then be the later one.
func TestSignalsThatSayNothingOfAnEndDoNotEndAWait(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	p := launch(t, "run", "-b", url, "x", "--", "true")
	awaitWaiters(t, url, "x", "1")
	for _, sig := range []syscall.Signal{syscall.SIGWINCH, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTERM} {
		p.signal(sig)
	}
	p.ends(128 + int(syscall.SIGTERM))
	holder.goOn()
	holder.ends(0)
}

func TestSignalsThatSayNothingOfAnEndArePassedOnToo(t *testing.T) {
	t.Parallel()
	script := `exec 2>/dev/null; trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo alrm' ALRM; trap 'echo winch' WINCH
		trap 'exit 6' TERM; echo up; while :; do sleep 0.05; done`
	p := launch(t, "run", "-b", redisURL(t), "x", "--", "sh", "-c", script)
	p.says("up")
	for said, sig := range map[string]syscall.Signal{
		"usr1": syscall.SIGUSR1, "usr2": syscall.SIGUSR2, "alrm": syscall.SIGALRM, "winch": syscall.SIGWINCH,
	} {
		p.signal(sig)
		p.says(said)
	}
	p.signal(syscall.SIGTERM)
	p.ends(6)
}

// A stopped process does not hear a signal before it is continued.
func TestStoppedCommandHearsTheSignalThatIsPassedOn(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		heed(t, sig)
		p := launch(t, "run", "-b", url, "x", "--", "sh", "-c", `exec 2>/dev/null; trap 'echo caught; exit 5' INT TERM HUP QUIT; echo "pid $$"; while :; do sleep 0.05; done`)
		pid := int(p.number("pid"))
		if err := syscall.Kill(-pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		p.signal(sig)
		p.ends(5)
	}
}

// A command that uses locker itself must not fall back to another store.
func TestBackendOfTheEnvironmentReachesTheCommandAndThatOfTheFlagDoesNot(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	show := []string{"x", "--", "sh", "-c", `echo "backend ${LOCKER_BACKEND-unset}"`}
	p := launchWith(t, []string{"LOCKER_BACKEND=" + url}, append([]string{"run"}, show...)...)
	p.ends(0)
	if got := p.word("backend"); got != url {
		t.Errorf("LOCKER_BACKEND is %q", got)
	}
	p = launch(t, append([]string{"run", "-b", url}, show...)...)
	p.ends(0)
	if got := p.word("backend"); got != "unset" {
		t.Errorf("LOCKER_BACKEND is %q", got)
	}
}
