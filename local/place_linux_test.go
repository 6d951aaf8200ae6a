package local

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

var reading = locker.WithShared()

func mustTry(t testing.TB, l locker.Locker, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lock, err := l.TryLock(patience(t), "x", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func mustBeKeptOut(t testing.TB, l locker.Locker, opts ...locker.Option) {
	t.Helper()
	if lock, err := l.TryLock(patience(t), "x", opts...); !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("TryLock: %v, %v, want ErrTaken", lock, err)
	}
}

// A process that is killed while it waits for a reader keeps nobody out, and neither does
// one that is stopped, when no reader has the lock any more.
func TestWriterThatDiesOrIsStoppedWhileItWaitsLetsReadersIn(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	reader := mustLock(t, l, "x", reading)
	writer := startWorker(t, "hold", dir, "x")
	until(t, "it waits", func() bool { return waiters(t, other, "x") == 1 })
	mustBeKeptOut(t, other, reading)
	if lock, err := other.Lock(patience(t), "x", reading, locker.WithWait(2*claimTime)); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("a reader that waits beside a writer that waits: %v, %v, want ErrTaken", lock, err)
	}
	writer.kill()
	mustUnlock(t, mustTry(t, other, reading))

	writer = startWorker(t, "hold", dir, "x")
	until(t, "another waits", func() bool { return waiters(t, other, "x") == 1 })
	writer.pause(t)
	mustBeKeptOut(t, other, reading)
	mustUnlock(t, reader)
	mustUnlock(t, mustTry(t, other, reading))
	mustUnlock(t, mustLock(t, l, "x", reading))
}

// One of those who wait is a reader, and writers hand the lock on to each other.
func TestReaderIsServedAmongWriters(t *testing.T) {
	dir := t.TempDir()
	stop := make(chan struct{})
	done := make(chan error)
	const writers = 3
	for range writers {
		l := newLocker(t, dir)
		go func() {
			for {
				lock, err := l.Lock(patience(t), "x")
				if err == nil {
					time.Sleep(time.Millisecond)
					err = lock.Unlock(t.Context())
				}
				select {
				case <-stop:
					done <- err
					return
				default:
				}
				if err != nil {
					done <- err
					return
				}
			}
		}()
	}
	l := newLocker(t, dir)
	for range 5 {
		mustUnlock(t, mustLock(t, l, "x", reading))
	}
	close(stop)
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// lockedByStranger has another program's lock on the whole file, of one kind.
func lockedByStranger(path string, kind int16) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart}
	return f, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
}

func TestStrangersWithLocksOfTheFileAreExcludedAndExclude(t *testing.T) {
	dir := t.TempDir()
	l, path := newLocker(t, dir), dir+"/x.lock"
	for what, opts := range map[string][]locker.Option{"exclusive": nil, "shared": {reading}, "slots": {locker.WithSlots(2)}} {
		lock := mustLock(t, l, "x", opts...)
		for _, kind := range []int16{unix.F_RDLCK, unix.F_WRLCK} {
			f, err := lockedByStranger(path, kind)
			if !errors.Is(err, unix.EAGAIN) {
				t.Errorf("a stranger beside a lock that is %s: %v, want EAGAIN", what, err)
			}
			_ = f.Close()
		}
		mustUnlock(t, lock)
		f, err := lockedByStranger(path, unix.F_WRLCK)
		if err != nil {
			t.Fatal(err)
		}
		if lock, err := l.TryLock(patience(t), "x", opts...); !errors.Is(err, locker.ErrTaken) && !errors.Is(err, locker.ErrMismatch) {
			t.Errorf("%s beside a stranger: %v, %v", what, lock, err)
		}
		if info, err := l.Inspect(t.Context(), "x"); err != nil || !info.Held {
			t.Errorf("%+v, %v, want held", info, err)
		}
		_ = f.Close()
	}
}

// Nobody has a slot, and a process that has stopped waits for one.
func TestNumberOfSlotsIsKeptWhileSomebodyWaitsForOne(t *testing.T) {
	l := newLocker(t, t.TempDir())
	waiter, err := openOrCreate(l.store.path("x"), "x")
	if err == nil {
		err = waiter.showWaiting(&driver.Request{Kind: locker.KindSlots, Slots: locker.MaxSlots})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, opt := range []locker.Option{locker.WithSlots(locker.MaxSlots - 1), locker.WithSlots(1), reading, locker.WithHolder("exclusive")} {
		if lock, err := l.TryLock(patience(t), "x", opt); !errors.Is(err, locker.ErrMismatch) {
			t.Errorf("%v, %v, want ErrMismatch", lock, err)
		}
	}
	if n := waiters(t, l, "x"); n != 1 {
		t.Errorf("%d waiters, want 1", n)
	}
	mustUnlock(t, mustTry(t, l, locker.WithSlots(locker.MaxSlots))) // which it leaves to the waiter for a while
	if err := waiter.drop(); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, mustTry(t, l, locker.WithSlots(7)))
}

// Places are used again, also those of processes that died.
func TestFileGrowsWithThoseWhoShareItAtATimeAlone(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		w := startWorker(t, "hold", dir, "x", "shared")
		w.line(t)
		w.kill()
	}
	a, b := newLocker(t, dir), newLocker(t, dir)
	for range 20 {
		first, second := mustLock(t, a, "x", reading), mustLock(t, b, "x", reading)
		mustUnlock(t, first)
		mustUnlock(t, second)
	}
	mustUnlock(t, mustLock(t, a, "x"))
	if n := len(readFile(t, dir+"/x.lock")); n != fileSize+3*slotSize {
		t.Errorf("the file has %d bytes, want three records behind the %d", n, fileSize)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%v, %v, want one file", files, err)
	}
}

// A record that cannot be read may be of any kind of holder.
func TestDamagedRecordOfAHolderIsAnError(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	lock := mustLock(t, l, "x", reading, locker.WithTTL(time.Hour))
	content := []byte(readFile(t, l.store.path("x")))
	writeFile(t, l.store.path("x"), flip(content, fileSize+slotSize+sumSize+20))
	for _, opts := range [][]locker.Option{nil, {reading, locker.WithHolder("another")}, {locker.WithSlots(2)}} {
		if lock, err := newLocker(t, dir).TryLock(patience(t), "x", opts...); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), l.store.path("x")) {
			t.Errorf("%v, %v, want ErrUnavailable with the path of the file", lock, err)
		}
	}
	mustUnlock(t, lock)
}

func TestMoreThanOneHundredProcessesReadAndSlotsAreCounted(t *testing.T) {
	dir := t.TempDir()
	const n = 120
	var all []*locker.Lock
	for k := range n {
		all = append(all, mustTry(t, newLocker(t, dir), locker.WithSlots(n)))
		if all[k].Slot() != k {
			t.Fatalf("slot %d, want %d", all[k].Slot(), k)
		}
	}
	mustBeKeptOut(t, newLocker(t, dir), locker.WithSlots(n))
	for _, k := range []int{n - 1, 57, 3} {
		mustUnlock(t, all[k])
	}
	for _, want := range []int{3, 57, n - 1} {
		lock := mustTry(t, newLocker(t, dir), locker.WithSlots(n))
		if lock.Slot() != want || lock.Token() <= all[want].Token() {
			t.Errorf("slot %d with token %d, want %d after token %d", lock.Slot(), lock.Token(), want, all[want].Token())
		}
		all[want] = lock
	}
	infos, err := newLocker(t, dir).List(t.Context(), "")
	if err != nil || len(infos) != 1 || infos[0].Slots != n || len(infos[0].Holders) != n {
		t.Fatalf("%d listed, %v", len(infos), err)
	}
	for _, lock := range all {
		mustUnlock(t, lock)
	}
}

// While others live who have a number of a grant, the next one need not be on the disk: the
// end of the grant is, and no crash of the system has come between.
func TestNumberIsOnTheDiskUnlessOthersLiveWhoHaveOneOfTheSameGrant(t *testing.T) {
	dir := t.TempDir()
	last := aheadOfClock(t, dir, "x") // grants have fewTokens
	flushes, before := 0, uint64(last)
	watchFlush(t, func(*os.File) error { flushes++; return nil })
	next := func(want int, opts ...locker.Option) *locker.Lock {
		t.Helper()
		flushes = 0
		lock := mustLock(t, newLocker(t, dir), "x", opts...)
		n := max(uint64(lock.Token()), uint64(lock.SharedToken()))
		if flushes != want || n <= before {
			t.Errorf("%d flushes, want %d, and number %d after %d", flushes, want, n, before)
		}
		before = n
		return lock
	}
	all := []*locker.Lock{next(1, reading)}
	for range fewTokens - 1 {
		all = append(all, next(0, reading))
	}
	all = append(all, next(1, reading), next(0, reading))
	for _, lock := range all {
		mustUnlock(t, lock)
	}
	mustUnlock(t, next(1, reading))
	mustUnlock(t, next(1))
	first := next(1, locker.WithSlots(2))
	mustUnlock(t, next(0, locker.WithSlots(2)))
	mustUnlock(t, first)
	mustUnlock(t, next(1))
}

// What was written and is not on the disk is gone after a crash: the record of the turn is
// older than the numbers that were granted.
func TestNumbersGoOnAfterACrashOfTheSystem(t *testing.T) {
	dir := t.TempDir()
	aheadOfClock(t, dir, "x")
	a, b := newLocker(t, dir), newLocker(t, dir)
	first := mustLock(t, a, "x", reading)
	onDisk := []byte(readFile(t, a.store.path("x")))
	second := mustLock(t, b, "x", reading)
	mustUnlock(t, first)
	mustUnlock(t, second)
	writeFile(t, a.store.path("x"), onDisk)
	if next := mustLock(t, a, "x", reading); next.SharedToken() <= second.SharedToken() {
		t.Errorf("number %d after %d", next.SharedToken(), second.SharedToken())
	}
}

// deciding returns a file of the lock "x" on which somebody has the turn.
func deciding(t *testing.T, l *Locker) *file {
	t.Helper()
	f, err := openOrCreate(l.store.path("x"), "x")
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := lockBytes(f.File, turn, 1); !ok || err != nil {
		t.Fatalf("the turn: %v, %v", ok, err)
	}
	t.Cleanup(func() { _ = f.drop() })
	return f
}

// Who decides may write to a slow disk. That the lock is taken is not known before.
func TestTryLockWaitsForWhoDecides(t *testing.T) {
	for _, opt := range []locker.Option{reading, locker.WithSlots(2)} {
		synctest.Test(t, func(t *testing.T) {
			l := newLocker(t, t.TempDir())
			f := deciding(t, l)
			decided := make(chan struct{})
			time.AfterFunc(decideTime/2, func() {
				defer close(decided)
				_ = unlockBytes(f.File, turn, 1)
			})
			lock := mustTry(t, l, opt)
			<-decided
			mustUnlock(t, lock)
		})
	}
}

// It may also have been stopped. Then nobody gets the lock until it is broken.
func TestWhoStopsAsItDecidesKeepsOthersOutUntilItIsBroken(t *testing.T) {
	for _, opt := range []locker.Option{reading, locker.WithSlots(2), locker.WithHolder("exclusive")} {
		dir := t.TempDir()
		l, other := newLocker(t, dir), newLocker(t, dir)
		before := mustLock(t, l, "x")
		mustUnlock(t, before)
		deciding(t, l)
		synctest.Test(t, func(t *testing.T) { mustBeKeptOut(t, newLocker(t, dir), opt) })
		mustBreak(t, other, true)
		lock := mustTry(t, l, opt)
		if n := max(uint64(lock.Token()), uint64(lock.SharedToken())); n <= uint64(before.Token()) {
			t.Errorf("number %d after %d", n, before.Token())
		}
		mustUnlock(t, lock)
	}
}
