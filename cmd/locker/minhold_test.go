//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/driver"
)

// The kernel frees a file lock when its process ends, so that has to stay.
func TestLockIsKeptForItsMinimumHoldWhereTheStoreCannot(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	began := time.Now()
	short := launch(t, "run", "-b", url, "--min-hold", "3s", "x", "--", "sh", "-c", "echo done; exit 4")
	short.says("done")
	launch(t, "run", "-b", url, "--no-wait", "--quiet", "x", "--", "echo", "ran").ends(75)
	waiter := launch(t, "run", "-b", url, "x", "--", "echo", "ran")
	waiter.says("ran")
	if waited := time.Since(began); waited < 3*time.Second {
		t.Errorf("somebody else got the lock after %v", waited)
	}
	short.ends(4)
	waiter.ends(0)
}

func TestNobodyStaysWhereTheStoreKeepsTheLock(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	launch(t, "run", "-b", url, "--min-hold", "10m", "x", "--", "sh", "-c", "exit 4").ends(4)
	launch(t, "run", "-b", url, "--no-wait", "x", "--", "echo", "ran").complains(75, `"x" is taken`)
}

func TestCommandThatTakesLongerThanTheMinimumHoldIsNotHeldUp(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	p := launch(t, "run", "-b", url, "--min-hold", "100ms", "x", "--", "sleep", "0.2")
	p.ends(0)
	free(t, url, "x")
}

func TestSignalEndsTheStayForTheMinimumHold(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	p := launch(t, "run", "-b", url, "--min-hold", "10m", "x", "--", "sh", "-c", "trap '' TERM USR1; echo done; exit 4")
	p.says("done")
	p.signal(syscall.SIGUSR1) // says nothing of an end
	p.signal(syscall.SIGTERM) // while the command ends, or later
	p.complains(4, "warning: others may get the lock", "--min-hold")
	free(t, url, "x")
}

func TestOnlyASignalThatAsksForAnEndCutsTheStay(t *testing.T) {
	t.Parallel()
	_, h := held(t)
	h.granted = driver.Now()
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGUSR1
	signals <- syscall.SIGHUP
	var end *signalError
	err := (&runCommand{minHold: time.Hour, wanted: wanted{backend: new(backend), names: []string{"x"}}}).stay(h, nil, signals)
	if !errors.As(err, &end) || end.sig != syscall.SIGHUP {
		t.Errorf("the stay ended with %v, want the hangup", err)
	}
}

func TestSignalThatEndsTheCommandAllowsNoStay(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	p := launch(t, "run", "-b", url, "--min-hold", "10m", "x", "--", "sh", "-c", "exec 2>/dev/null; trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done")
	p.says("up")
	p.signal(syscall.SIGTERM)
	p.complains(4, "warning: others may get the lock", "--min-hold")
}

func TestLossBeforeTheStayIsStatus70(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	p := launch(t, "run", "-b", url, "--ttl", "10m", "--min-hold", "10m", "x", "y", "--", "sh", "-c", report)
	p.word("token")
	launch(t, "unlock", "-b", url, "--force", "x").ends(0) // and "y" is held
	p.goOn()
	p.complains(70, `the last part of "sh" ran without its lock`)
}

func TestEndThatMaxHoldSetsIsNoWarningForTheMinimumHold(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	p := launch(t, "run", "-b", url, "--min-hold", "1s", "--max-hold", "1s", "x", "--", "true")
	p.ends(0)
	if p.errs.String() != "" {
		t.Errorf("it says %s", p.errs)
	}
}
