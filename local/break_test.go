package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

func mustBreak(t *testing.T, l *Locker, want bool) {
	t.Helper()
	if broken, err := l.Break(patience(t), "x"); broken != want || err != nil {
		t.Fatalf("Break: %v, %v, want %v", broken, err, want)
	}
}

func TestBreakFreesOnlyWhatIsHeld(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	mustBreak(t, other, false) // there is no file
	if _, err := os.Stat(filepath.Join(dir, "x.lock")); err == nil {
		t.Error("Break made a file")
	}
	last := aheadOfClock(t, dir, "x")
	before := readFile(t, filepath.Join(dir, "x.lock"))
	mustBreak(t, other, false)
	if readFile(t, filepath.Join(dir, "x.lock")) != before {
		t.Error("a free lock's file was replaced")
	}
	lock := mustLock(t, l, "x", locker.WithTTL(3*time.Second))
	mustBreak(t, other, true)
	mustBreak(t, other, false)
	next, err := other.TryLock(patience(t), "x")
	if err != nil {
		t.Fatal(err)
	}
	if lock.Token() != last+1 || next.Token() != last+1+fewTokens {
		t.Errorf("tokens %d and %d after %d", lock.Token(), next.Token(), last)
	}
	if reason := mustBeLost(t, lock); reason != locker.ReasonForced {
		t.Errorf("lost because %v", reason)
	}
	mustUnlock(t, next)
}

func TestBrokenHolderLearnsOfItFromUnlockOrRenew(t *testing.T) {
	dir := t.TempDir()
	other := newLocker(t, dir)
	for what, ask := range map[string]func(*locker.Lock) error{
		"Unlock": func(lock *locker.Lock) error { return lock.Unlock(t.Context()) },
		"Renew":  func(lock *locker.Lock) error { return lock.Renew(t.Context()) },
	} {
		lock := mustLock(t, newLocker(t, dir), "x", locker.WithTTL(time.Hour))
		mustBreak(t, other, true)
		next := mustLock(t, other, "x")
		var lost *locker.LostError
		if err := ask(lock); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced || lost.Name != "x" {
			t.Errorf("%s: %v, want Forced", what, err)
		}
		mustUnlock(t, next)
	}
}

// once returns a function that calls f when it is called for the first time.
func once(f func()) func(*os.File) error {
	did := false
	return func(*os.File) error {
		if !did {
			did = true
			f()
		}
		return nil
	}
}

// The rename comes between the two looks of an acquirer, which is about to make
// its token durable. Nobody may be given that token.
func TestBreakInTheMiddleOfAnAcquire(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	last := aheadOfClock(t, dir, "x")
	watchFlush(t, once(func() { mustBreak(t, other, true) }))
	lock := mustLock(t, l, "x")
	if lock.Token() <= last {
		t.Errorf("token %d after %d", lock.Token(), last)
	}
	mustBeTaken(t, other, "x")
	if err := lock.Err(); err != nil {
		t.Error(err)
	}
	mustUnlock(t, lock) // says ErrLost if the lock was on the old file
}

// The rename comes before the first look: the acquirer has the old file open.
func TestBreakBeforeTheFirstLookOfAnAcquire(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	last := aheadOfClock(t, dir, "x")
	old, err := openFile(l.store.path("x"), "x")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.Open(l.store.path("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kept.Close() }()
	holder := mustLock(t, other, "x")
	mustBreak(t, newLocker(t, dir), true)
	mustUnlockLost(t, holder)
	before := make([]byte, fileSize)
	if _, err := kept.ReadAt(before, 0); err != nil {
		t.Fatal(err)
	}
	a := &attempt{req: &driver.Request{Name: "x"}, file: old}
	if g, awaited, err := l.store.look(t.Context(), a, false); g.Count > 0 || !awaited || err != nil {
		t.Fatalf("on the old file: %+v, awaited %v, %v", g, awaited, err)
	}
	if g, _, err := l.store.look(t.Context(), a, false); err != nil || g.First != uint64(last+1+fewTokens) {
		t.Fatalf("on the new file: %+v, %v, with %d lost", g, err, last+1)
	}
	after := make([]byte, fileSize)
	if _, err := kept.ReadAt(after, 0); err != nil || string(after) != string(before) {
		t.Error("a token was written to a file that was gone")
	}
	if err := l.store.Release(t.Context(), a, 0); err != nil {
		t.Error(err)
	}
}

func mustUnlockLost(t *testing.T, lock *locker.Lock) {
	t.Helper()
	if err := lock.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Fatalf("Unlock: %v, want ErrLost", err)
	}
}

// The lock goes from hand to hand while the breaker has read the counter and not
// yet renamed. Those tokens count too.
func TestBreakKeepsTokensThatAreDrawnMeanwhile(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	last := aheadOfClock(t, dir, "x")
	mustBreak(t, other, false) // makes the file of breakers
	lock := mustLock(t, l, "x")
	watchFlush(t, once(func() { // the breaker's temporary file
		mustUnlock(t, lock)
		for range 5 {
			lock = mustLock(t, l, "x")
			mustUnlock(t, lock)
		}
		lock = mustLock(t, l, "x")
	}))
	mustBreak(t, other, true)
	next := mustLock(t, other, "x")
	if lock.Token() != last+1+6*fewTokens || next.Token() != last+1+7*fewTokens {
		t.Errorf("tokens %d and %d, want the seventh and the eighth grant's after %d", lock.Token(), next.Token(), last)
	}
	mustUnlockLost(t, lock)
	mustUnlock(t, next)
}

// Somebody who is quick finds the new file before its counter is written.
func TestNewFileIsLockedUntilItsCounterIsWritten(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	mustBreak(t, other, false) // makes the file of breakers
	mustLock(t, l, "x", locker.WithTTL(time.Hour))
	third, flushes := newLocker(t, dir), 0
	watchFlush(t, func(*os.File) error {
		if flushes++; flushes == 2 || flushes == 3 { // after the rename
			mustBeTaken(t, third, "x")
		}
		return nil
	})
	mustBreak(t, other, true)
	if flushes != 3 { // temporary file, counter, directory
		t.Errorf("%d flushes, want 3", flushes)
	}
	mustLock(t, third, "x")
}

// Something else lies in the place of the file when the breaker is about to replace it.
func TestBreakThatCannotReplaceTheFileLeavesNoneBehind(t *testing.T) {
	for what, only := range map[string]bool{"all": false, "the holder of one token": true} {
		dir := t.TempDir()
		l, other := newLocker(t, dir), newLocker(t, dir)
		mustBreak(t, other, false) // makes the file of breakers
		lock := mustLock(t, l, "x", locker.WithTTL(time.Hour))
		breaks := func() (bool, error) { return other.Break(patience(t), "x") }
		if only {
			breaks = func() (bool, error) { return other.BreakHolder(patience(t), "x", locker.Number(lock.Token())) }
		}
		path := l.store.path("x")
		watchFlush(t, once(func() { // the breaker's temporary file
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Error(err)
			}
		}))
		if broken, err := breaks(); broken || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("%s: Break: %v, %v, want ErrUnavailable", what, broken, err)
		}
		if files, _ := filepath.Glob(dir + "/.new*"); len(files) > 0 {
			t.Errorf("%s: left behind: %v", what, files)
		}
	}
}

func TestBreakersTakeTurns(t *testing.T) {
	dir := t.TempDir()
	other := newLocker(t, dir)
	mustLock(t, newLocker(t, dir), "x", locker.WithTTL(time.Hour))
	breaker, err := openOrCreate(filepath.Join(dir, ".break"), "")
	if err != nil {
		t.Fatal(err)
	}
	if ok, _, err := breaker.take(&driver.Request{}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if broken, err := other.Break(ctx, "x"); broken || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, %v, want DeadlineExceeded", broken, err)
	}
	mustBeTaken(t, other, "x")
	if err := breaker.drop(); err != nil {
		t.Fatal(err)
	}
	mustBreak(t, other, true)
}

// Exclusion is off while locks are broken, so tokens are not in order; but none
// is given twice, and each goroutine's own increase. They pass leases on that may be
// broken by then.
func TestNoTokenIsGivenTwiceWhileLocksAreBroken(t *testing.T) {
	dir := t.TempDir()
	aheadOfClock(t, dir, "x")
	ctx, stop := context.WithCancel(patience(t))
	defer stop()
	var all sync.WaitGroup
	for range 2 {
		breaker := newLocker(t, dir)
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := breaker.Break(t.Context(), "x"); err != nil { // in ctx it would go on behind the test's back
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	seen := map[fencing.Token]bool{}
	var lockers sync.WaitGroup
	ls := []*Locker{newLocker(t, dir), newLocker(t, dir), newLocker(t, dir)}
	for k := range 3 * len(ls) {
		l := ls[k%len(ls)]
		lockers.Go(func() {
			last := fencing.Token(0)
			for range 50 {
				lock, err := l.Lock(ctx, "x")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[lock.Token()] || lock.Token() <= last {
					t.Errorf("token %d after %d, given before: %v", lock.Token(), last, seen[lock.Token()])
				}
				seen[lock.Token()] = true
				mu.Unlock()
				last = lock.Token()
				if err := lock.Unlock(ctx); err != nil && !errors.Is(err, locker.ErrLost) {
					t.Error(err)
				}
			}
		})
	}
	lockers.Wait()
	stop()
	all.Wait()
	if files, _ := filepath.Glob(dir + "/.new*"); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestDeletedFileIsNoticed(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	lock := mustLock(t, l, "x", locker.WithTTL(3*time.Second))
	if err := os.Remove(l.store.path("x")); err != nil {
		t.Fatal(err)
	}
	next := mustLock(t, newLocker(t, dir), "x")
	if next.Token() <= lock.Token() {
		t.Errorf("token %d after %d", next.Token(), lock.Token())
	}
	mustBeLost(t, lock)
	mustUnlockLost(t, lock)
	mustBeTaken(t, newLocker(t, dir), "x")
	mustUnlock(t, next)

	lock = mustLock(t, l, "x", locker.WithTTL(time.Hour))
	if err := os.Remove(l.store.path("x")); err != nil {
		t.Fatal(err)
	}
	var lost *locker.LostError
	if err := lock.Unlock(t.Context()); !errors.As(err, &lost) || lost.Reason != locker.ReasonTakenOver {
		t.Errorf("Unlock: %v, want TakenOver", err)
	}
}

// The file is deleted between the two looks.
func TestFileDeletedInTheMiddleOfAnAcquire(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	aheadOfClock(t, dir, "x")
	watchFlush(t, once(func() {
		if err := os.Remove(l.store.path("x")); err != nil {
			t.Error(err)
		}
	}))
	lock := mustLock(t, l, "x")
	mustBeTaken(t, newLocker(t, dir), "x")
	mustUnlock(t, lock)
}
