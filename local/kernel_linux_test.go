package local

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// descriptorsOf returns what this process has open below dir.
func descriptorsOf(t *testing.T, dir string) (targets []string, fds []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(target, dir) {
			targets, fds = append(targets, target), append(fds, fd.Name())
		}
	}
	return targets, fds
}

// keepGarbage keeps the garbage collector from closing what we forgot to.
func keepGarbage(t *testing.T) {
	before := debug.SetGCPercent(-1)
	t.Cleanup(func() { debug.SetGCPercent(before) })
}

func TestNoDescriptorLeaks(t *testing.T) {
	keepGarbage(t)
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	writeFile(t, l.store.path("damaged"), []byte("?"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for i := range 1000 {
		lock := mustLock(t, l, "x")
		mustBeTaken(t, other, "x")
		if i%50 > 0 {
			mustUnlock(t, lock)
			continue
		}
		_, _ = other.Lock(ctx, "x")
		mustBreak(t, other, true)
		mustInspect(t, l, locker.Info{Name: "x", Token: lock.Token() + manyTokens - 1}) // all that it may have had
		mustUnlockLost(t, lock)
		mustBreak(t, other, false)
		if _, err := l.TryLock(t.Context(), "damaged"); err == nil {
			t.Fatal("no error")
		}
		if _, err := l.Inspect(t.Context(), "damaged"); err == nil {
			t.Fatal("no error")
		}
	}
	if open, _ := descriptorsOf(t, dir); len(open) > 0 {
		t.Errorf("still open: %v", open)
	}
	lock := mustLock(t, l, "x", locker.WithTTL(locker.MinTTL))
	if open, _ := descriptorsOf(t, dir); len(open) != 1 {
		t.Errorf("open while one lock is held: %v", open)
	}
	mustBreak(t, other, true)
	mustBeLost(t, lock)
	until(t, "the lost lock's file is closed", func() bool {
		open, _ := descriptorsOf(t, dir)
		return len(open) == 0
	})
}

func TestErrorsOfTheDiskLeakNoDescriptor(t *testing.T) {
	keepGarbage(t)
	dir := t.TempDir()
	l := newLocker(t, dir)
	mustUnlock(t, mustLock(t, l, "there"))
	mustBreak(t, l, false) // makes the file of breakers
	held := mustLock(t, newLocker(t, dir), "x")
	for fails := range 4 { // at the first lockdir.Flush, at the second, …
		n := 0
		watchFlush(t, func(*os.File) error {
			if n++; n > fails {
				return errors.New("broken disk")
			}
			return nil
		})
		_, _ = l.TryLock(t.Context(), "new")
		_, _ = l.TryLock(t.Context(), "there")
		if broken, err := l.Break(t.Context(), "x"); err == nil {
			t.Errorf("Break: %v", broken)
		}
	}
	if err := held.Unlock(t.Context()); err != nil && !errors.Is(err, locker.ErrLost) {
		t.Error(err)
	}
	if open, _ := descriptorsOf(t, dir); len(open) > 0 {
		t.Errorf("still open: %v", open)
	}
	if files, _ := filepath.Glob(dir + "/.new*"); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// A process that is killed has a child, and the child lives on.
func TestChildDoesNotInheritTheLock(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	w := startWorker(t, "hold", dir, "x", "with a child")
	child, err := strconv.Atoi(w.line(t))
	if err != nil {
		t.Fatal(err)
	}
	w.line(t)
	mustBeTaken(t, l, "x")
	if err := w.Process.Kill(); err != nil { // not w.kill: the child's input stays open
		t.Fatal(err)
	}
	mustUnlock(t, mustLock(t, l, "x"))
	if err := syscall.Kill(child, 0); err != nil {
		t.Errorf("the child does not live: %v", err)
	}
}

// Between fork and exec a child has a copy of every descriptor.
func TestUnlockDoesNotWaitForCopiesOfTheDescriptor(t *testing.T) {
	dir := t.TempDir()
	lock := mustLock(t, newLocker(t, dir), "x")
	_, fds := descriptorsOf(t, dir)
	fd, err := os.Open("/proc/self/fd") // any file: its number is what the copy gets
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fd.Close() }()
	if len(fds) != 1 {
		t.Fatalf("open: %v", fds)
	}
	number, err := strconv.Atoi(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup3(number, int(fd.Fd()), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, lock)
	next, err := newLocker(t, dir).TryLock(patience(t), "x")
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, next)
}

// pause stops the process. It stands still then: until it does, it may take a lock that comes free.
func (w *worker) pause(t *testing.T) {
	t.Helper()
	if err := errors.Join(w.Process.Signal(syscall.SIGSTOP), testserver.AwaitStopped(w.Process.Pid)); err != nil {
		t.Fatal(err)
	}
}

// goOn lets a process that was paused go on.
func (w *worker) goOn(t *testing.T) {
	t.Helper()
	if err := w.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// A process that is stopped keeps its lock, for any time.
func TestStoppedProcessKeepsItsLock(t *testing.T) {
	dir := t.TempDir()
	w := startWorker(t, "hold", dir, "x")
	w.line(t)
	w.pause(t)
	mustBeTaken(t, newLocker(t, dir), "x")
	mustBreak(t, newLocker(t, dir), true)
	mustUnlock(t, mustLock(t, newLocker(t, dir), "x"))
}

func TestUnwritableDirectoryIsAnError(t *testing.T) {
	dir := t.TempDir()
	out, err := asOrdinaryUser(t, "new", dir, 0o555)
	if err == nil || !strings.Contains(out, "cannot be written to") || !strings.Contains(out, dir) {
		t.Errorf("%v: %s", err, out)
	}
}

// asOrdinaryUser runs a worker that is not root on a directory with this mode.
func asOrdinaryUser(t *testing.T, kind, dir string, mode os.FileMode, args ...string) (said string, err error) {
	t.Helper()
	for d := os.TempDir(); d != "/"; d = filepath.Dir(d) {
		if info, err := os.Stat(d); err != nil || info.Mode().Perm()&0o001 == 0 {
			t.Skipf("another user cannot get to %s: %v", d, err)
		}
	}
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	w := exec.Command("/proc/self/exe", append([]string{dir}, args...)...) // the binary's own directory is private
	w.Env = append(os.Environ(), workerVariable+"="+kind)
	if os.Geteuid() == 0 {
		w.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := w.CombinedOutput()
	return string(out), err
}

func TestLockFileOfAnotherUserIsAnErrorThatSaysWhoMayLock(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	mustUnlock(t, mustLock(t, l, "x"))
	if os.Geteuid() != 0 { // there is no other user to be had, but nobody may open this
		if err := os.Chmod(l.store.path("x"), 0); err != nil {
			t.Fatal(err)
		}
	}
	out, err := asOrdinaryUser(t, "hold", dir, 0o777, "x")
	for _, want := range []string{`"x"`, l.store.path("x"), "permission denied", "run as one user"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("no %q in: %v: %s", want, err, out)
		}
	}
}

func TestPipeInThePlaceOfTheFileIsAnError(t *testing.T) {
	keepGarbage(t)
	dir := t.TempDir()
	l := newLocker(t, dir)
	if err := unix.Mkfifo(l.store.path("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryLock(t.Context(), "x"); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v, want ErrUnavailable and why", err)
	}
	if _, err := l.Inspect(t.Context(), "x"); err == nil {
		t.Error("no error")
	}
	if open, _ := descriptorsOf(t, dir); len(open) > 0 {
		t.Errorf("still open: %v", open)
	}
}
