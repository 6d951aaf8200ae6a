//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"path/filepath"
	"syscall"
	"testing"
)

func TestWithoutABackendTheUsersOwnDirectoryHasTheLocks(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	env := []string{"XDG_RUNTIME_DIR=" + base}
	holder := launchWith(t, env, "run", "x", "--", "sh", "-c", report)
	first := holder.number("token")
	launchWith(t, env, "run", "--no-wait", "x", "--", "true").complains(75, `"x"`)
	launch(t, "run", "-b", "local:"+filepath.Join(base, "lockstile"), "--wait", "100ms", "x", "--", "true").complains(75, `"x"`)
	p := launchWith(t, env, "inspect", "x")
	p.ends(0)
	if p.word("held:") != "yes" || p.number("token:") != first {
		t.Errorf("the lock of token %d: %s", first, p.out)
	}
	waiter := launchWith(t, env, "run", "x", "--", "sh", "-c", report)
	holder.goOn()
	holder.ends(0)
	waiter.followsAndEnds(first)
}

func TestKilledLockerFreesALocalLockAtOnce(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	p := launch(t, "run", "-b", url, "--ttl", "1h", "x", "--", "sh", "-c", report)
	first := p.number("token")
	p.signal(syscall.SIGKILL)
	p.goOn() // where nothing ends it with locker
	p.ends(-int(syscall.SIGKILL))
	launch(t, "run", "-b", url, "--no-wait", "x", "--", "sh", "-c", report).followsAndEnds(first)
}

// The lock is in a file, and stays when its process ends.
func TestKilledLockerFreesALockInAFileAfterItsTTL(t *testing.T) {
	t.Parallel()
	url := "file:" + t.TempDir()
	p := launch(t, "run", "-b", url, "--ttl", "3s", "x", "--", "sh", "-c", report)
	first := p.number("token")
	p.signal(syscall.SIGKILL)
	p.goOn() // where nothing ends it with locker
	p.ends(-int(syscall.SIGKILL))
	launch(t, "run", "-b", url, "--no-wait", "x", "--", "true").ends(75)
	launch(t, "run", "-b", url, "x", "--", "sh", "-c", report).followsAndEnds(first)
}

func TestLocalLockThatIsForcedEndsItsCommand(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	old := launch(t, "run", "-b", url, "--ttl", "1s", "x", "--", "sh", "-c", report)
	first := old.number("token")
	launch(t, "unlock", "-b", url, "--force", "x").ends(0)
	old.complains(70, `lock "x" lost`)
	launch(t, "run", "-b", url, "x", "--", "sh", "-c", report).followsAndEnds(first)
}

func TestDirectoryThatCannotBeUsedIsStatus77AndNamed(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	launch(t, "run", "-b", "local:"+missing, "x", "--", "true").complains(77, missing, "no such file")
	launchWith(t, []string{"XDG_RUNTIME_DIR=" + missing}, "run", "x", "--", "true").complains(77, missing, "none is set")
}
