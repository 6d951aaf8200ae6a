package local

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// The kernel keeps the lock of a stopped process. Whoever breaks it lets others in beside
// that, and everybody but the broken one is excluded as before.
func TestBrokenReaderWhoseProcessIsStoppedKeepsNobodyOut(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	stopped := startWorker(t, "hold", dir, "x", "shared") // its place is the first
	number, err := fencing.ParseToken(stopped.line(t))
	if err != nil {
		t.Fatal(err)
	}
	first := mustLock(t, l, "x", reading, locker.WithTTL(time.Hour))
	last := mustLock(t, other, "x", reading, locker.WithTTL(time.Hour))
	stopped.pause(t)
	if broken, err := other.BreakHolder(patience(t), "x", locker.Number(number)); !broken || err != nil {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	if broken, err := other.BreakHolder(patience(t), "x", locker.Number(number)); broken || err != nil {
		t.Fatalf("Break of one that is broken already: %v, %v", broken, err)
	}
	for _, lock := range []*locker.Lock{first, last} {
		mustBeKeptOut(t, newLocker(t, dir))
		if err := lock.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, lock)
	}
	mustInspect(t, other, locker.Info{Name: "x", Token: fencing.Token(last.SharedToken())})
	before := uint64(last.SharedToken())
	for _, opts := range [][]locker.Option{nil, {reading}, {locker.WithSlots(2)}} {
		lock := mustTry(t, other, opts...)
		n := max(uint64(lock.Token()), uint64(lock.SharedToken()))
		if n <= before {
			t.Errorf("number %d after %d", n, before)
		}
		before = n
		if len(opts) == 0 {
			mustBeKeptOut(t, l)
			mustBeKeptOut(t, l, reading)
			info, err := l.Inspect(t.Context(), "x")
			if err != nil || !info.Held || info.Token != lock.Token() || len(info.Holders) != 1 {
				t.Errorf("%+v, %v, want held with token %d", info, err, lock.Token())
			}
		}
		mustUnlock(t, lock)
	}
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = stopped.in.Close()
	if got := stopped.line(t); !strings.Contains(got, "forcibly") {
		t.Errorf("Unlock: %s, want that it was broken", got)
	}
}

// The lock goes to another holder while the breaker is about to replace the file.
func TestBreakOfATokenSparesTheNextHolder(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	mustBreak(t, other, false) // makes the file of breakers
	lock := mustLock(t, l, "x", locker.WithTTL(time.Hour))
	number := locker.Number(lock.Token())
	watchFlush(t, once(func() { // the breaker's temporary file
		mustUnlock(t, lock)
		lock = mustLock(t, l, "x", locker.WithTTL(time.Hour))
	}))
	if broken, err := other.BreakHolder(patience(t), "x", number); broken || err != nil {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	mustBeKeptOut(t, other)
	flushes := 0 // a holder who looks while the file is replaced and put back is broken
	watchFlush(t, func(*os.File) error { flushes++; return nil })
	if broken, err := other.BreakHolder(patience(t), "x", number); broken || err != nil || flushes > 0 {
		t.Fatalf("Break of a token that is over: %v, %v, %d flushes", broken, err, flushes)
	}
	if err := lock.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	if broken, err := other.BreakHolder(patience(t), "x", locker.Number(lock.Token())); !broken || err != nil {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	mustUnlockLost(t, lock)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v, want the lock and .break", files, err)
	}
}

// Whoever is about to share the lock has a place, in which the record is still that of
// somebody who had a slot.
func TestRecordOfAnEarlierHolderIsNotTakenForThatOfTheNext(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	slot := mustLock(t, l, "x", locker.WithSlots(3))
	number := locker.Number(slot.Token())
	mustUnlock(t, slot)
	watchFlush(t, once(func() { // the reader's number
		mustBeKeptOut(t, other) // and not an ErrMismatch
		short, cancel := contextOf(20 * time.Millisecond)
		defer cancel()
		if broken, err := other.BreakHolder(short, "x", number); broken || err == nil {
			t.Errorf("Break by the number of an earlier holder: %v, %v", broken, err)
		}
	}))
	mustUnlock(t, mustLock(t, l, "x", reading))
	other.store.breaking <- struct{}{} // waits for the break that outlived its context, which may still make .break
}

// Somebody has the old file open. There the kernel keeps the slot of a holder who was broken.
func TestHoldersOnAnOldFileAreNoMismatch(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	mustLock(t, newLocker(t, dir), "x", locker.WithSlots(2), locker.WithTTL(time.Hour))
	old, err := openFile(l.store.path("x"), "x")
	if err != nil {
		t.Fatal(err)
	}
	mustBreak(t, l, true)
	a := &attempt{req: &driver.Request{Name: "x"}, file: old}
	if g, awaited, err := l.store.look(t.Context(), a, false); g.Count > 0 || !awaited || err != nil {
		t.Errorf("on the old file: %+v, awaited %v, %v", g, awaited, err)
	}
	mustUnlock(t, mustTry(t, l))
}

// A writer that waits looks again and again who has the lock. In between, others can decide.
func TestWhoWaitsKeepsNobodyFromDeciding(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	reader := mustLock(t, l, "x", reading, locker.WithTTL(time.Hour))
	done := make(chan error)
	go func() {
		lock, err := other.Lock(patience(t), "x")
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		done <- err
	}()
	until(t, "it waits", func() bool { return waiters(t, l, "x") == 1 })
	for range 20 {
		time.Sleep(time.Millisecond)
		if broken, err := l.BreakHolder(patience(t), "x", 1); broken || err != nil {
			t.Fatalf("Break of a number that nobody has: %v, %v", broken, err)
		}
	}
	if broken, err := l.BreakHolder(patience(t), "x", locker.Number(reader.SharedToken())); !broken || err != nil {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	if err := <-done; err != nil { // beside what the reader still has
		t.Error(err)
	}
	mustUnlockLost(t, reader)
}

// The others of one kind are looked at one by one, but for a reader, to whom one is enough
// unless that one was broken.
func TestReaderIsTakenInBesideNoSlotThoughOthersWereBroken(t *testing.T) {
	for _, broken := range [][]int{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}} {
		dir := t.TempDir()
		var all []*locker.Lock
		for range 3 {
			all = append(all, mustLock(t, newLocker(t, dir), "x", locker.WithSlots(3), locker.WithTTL(time.Hour)))
		}
		for _, k := range broken {
			if ok, err := newLocker(t, dir).BreakHolder(patience(t), "x", locker.Number(all[k].Token())); !ok || err != nil {
				t.Fatalf("Break: %v, %v", ok, err)
			}
		}
		if lock, err := newLocker(t, dir).TryLock(patience(t), "x", reading); !errors.Is(err, locker.ErrMismatch) {
			t.Errorf("a reader beside three slots of which %v were broken: %v, %v, want ErrMismatch", broken, lock, err)
		}
	}
}
