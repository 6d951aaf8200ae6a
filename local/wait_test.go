package local

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// waiters returns how many processes the kernel says are waiting.
func waiters(t testing.TB, l *Locker, name string) int {
	t.Helper()
	if !byteRanges {
		t.Skip("waiters cannot be seen on this system")
	}
	info, err := l.Inspect(patience(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Waiters
}

// pausedWaiter waits for x and never takes it, as a process that is stopped.
func pausedWaiter(t *testing.T, l *Locker) *file {
	t.Helper()
	f, err := openOrCreate(l.store.path("x"), "x")
	if err == nil {
		err = f.showWaiting(&driver.Request{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.drop() })
	return f
}

func TestFreeLockIsLeftToWhoWaitsButNotForEver(t *testing.T) {
	if !byteRanges {
		t.Skip("waiters cannot be seen on this system")
	}
	l := newLocker(t, t.TempDir())
	waiter := pausedWaiter(t, l)
	a := &attempt{req: &driver.Request{Name: "x"}}
	if g, awaited, err := l.store.look(t.Context(), a, true); g.Count > 0 || !awaited || err != nil {
		t.Errorf("a polite look: %+v, awaited %v, %v", g, awaited, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if g, left, err := l.store.Acquire(over, a, nil); g.Count > 0 || err != nil || left != driver.Nothing || a.open() {
		t.Errorf("a TryLock whose context ends while another waits: %+v, %v, want taken and nothing left", g, err)
	}
	began := time.Now()
	lock, err := l.TryLock(patience(t), "x")
	if err != nil {
		t.Fatal(err)
	}
	if passed := time.Since(began); passed < claimTime {
		t.Errorf("the lock was taken from who waited for it after %v", passed)
	}
	mustUnlock(t, lock)
	mustUnlock(t, mustLock(t, l, "x"))
	if ok, _, err := waiter.take(&driver.Request{}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	mustBeTaken(t, l, "x")
	if n := waiters(t, l, "x"); n != 0 {
		t.Errorf("who has the lock is counted as %d waiters", n)
	}
}

// Where waiters cannot be seen, a goroutine that stood in line for a lock which its process
// gives back lets other processes look first.
func TestWhoStoodInLineForWhatWasGivenBackIsLateOnce(t *testing.T) {
	l := newLocker(t, t.TempDir())
	lock := mustLock(t, l, "x")
	stood, err := l.store.Begin(&driver.Request{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if l.store.late(stood) {
		t.Error("late before anything was given back")
	}
	mustUnlock(t, lock)
	if !l.store.late(stood) || l.store.late(stood) {
		t.Error("not late, or twice")
	}
	if came, err := l.store.Begin(&driver.Request{Name: "x"}); err != nil || l.store.late(came) {
		t.Errorf("late though it came afterwards, %v", err)
	}
}

// An error of the file system ends a wait: it would be the same a second later.
func TestWaitEndsWhenTheDirectoryIsRemoved(t *testing.T) {
	dir := t.TempDir()
	l, held := newLocker(t, dir), mustLock(t, newLocker(t, dir), "x", locker.WithTTL(time.Hour))
	done := make(chan error)
	go func() {
		_, err := l.Lock(patience(t), "x")
		done <- err
	}()
	until(t, "it waits", func() bool { return waiters(t, l, "x") == 1 })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, locker.ErrUnavailable) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want ErrUnavailable and its cause", err)
	}
	if err := held.Renew(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the holder: %v, want ErrLost", err)
	}
}

func TestLockThatIsKeptHasNoEnd(t *testing.T) {
	lock := mustLock(t, newLocker(t, t.TempDir()), "x", locker.WithTTL(locker.MinTTL))
	if !lock.Deadline().IsZero() {
		t.Errorf("deadline %v", lock.Deadline())
	}
	mustUnlock(t, lock)
}
