package local

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// A waiter that is stopped must have taken nothing that others need.
func TestWaiterThatIsStoppedKeepsNothing(t *testing.T) {
	for what, opt := range map[string]locker.Option{"slots": locker.WithSlots(64), "shared": reading} {
		dir := t.TempDir()
		l := newLocker(t, dir)
		var held []*locker.Lock
		for range 64 {
			held = append(held, mustLock(t, newLocker(t, dir), "x", opt))
		}
		kind := what
		if what == "shared" {
			kind = "" // it wants the lock alone
		}
		w := startWorker(t, "wait", dir, "x", kind)
		until(t, "it waits", func() bool { return waiters(t, l, "x") == 1 })
		for round := range 40 {
			w.pause(t)
			f, err := openFile(l.store.path("x"), "x")
			if err != nil {
				t.Fatal(err)
			}
			if _, _, has, err := getLock(f.File, turn, 1); has || err != nil {
				t.Fatalf("%s: in round %d the waiter was stopped with the turn, %v", what, round, err)
			}
			_ = f.Close()
			w.goOn(t)
			time.Sleep(time.Duration(round) * 100 * time.Microsecond)
		}
		for _, lock := range held {
			mustUnlock(t, lock)
		}
		w.kill()
	}
}

// A waiter sees without the turn that all slots are taken. TryLock waits for whoever has the turn.
func TestWhoWaitsTakesNoTurnWhereAllSlotsAreTaken(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	for range 2 {
		mustLock(t, newLocker(t, dir), "x", locker.WithSlots(2))
	}
	deciding(t, l)
	a := &attempt{req: &driver.Request{Name: "x", Kind: locker.KindSlots, Slots: 2}}
	for _, waits := range []bool{false, true} {
		if g, awaited, err := l.store.look(t.Context(), a, false); g.Count > 0 || awaited == waits || err != nil {
			t.Errorf("waits %v: %+v, awaited %v, %v", waits, g, awaited, err)
		}
		if err := a.file.showWaiting(a.req); err != nil {
			t.Fatal(err)
		}
	}
	_ = a.file.drop()
}

// There are as many slots as processes, so one is free for who tries, whoever comes and goes meanwhile.
func TestSlotIsFreeForEachOfAsManyWhoComeAndGo(t *testing.T) {
	const n = 4
	dir := t.TempDir()
	var all sync.WaitGroup
	for range n {
		l := newLocker(t, dir)
		all.Go(func() {
			for range 2000 {
				lock, err := l.TryLock(t.Context(), "x", locker.WithSlots(n))
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// A holder whose lock was broken keeps its place while it does not look.
func TestSlotOfOneWhoWasBrokenIsGranted(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	long := locker.WithTTL(time.Hour)
	first := mustLock(t, newLocker(t, dir), "x", locker.WithSlots(2), long)
	mustLock(t, newLocker(t, dir), "x", locker.WithSlots(2), long)
	got := make(chan *locker.Lock)
	go func() {
		lock, err := l.Lock(t.Context(), "x", locker.WithSlots(2), locker.WithWait(10*time.Second))
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	until(t, "it waits", func() bool { return waiters(t, l, "x") == 1 })
	if ok, err := l.BreakHolder(patience(t), "x", locker.Number(first.Token())); !ok || err != nil {
		t.Fatalf("Break: %v, %v", ok, err)
	}
	if lock := <-got; lock != nil && (lock.Slot() != 0 || lock.Token() <= first.Token()) {
		t.Errorf("slot %d with token %d after %d", lock.Slot(), lock.Token(), first.Token())
	}
}

func TestWhoWaitsForItAloneIsToldOfSlots(t *testing.T) {
	l := newLocker(t, t.TempDir())
	a := &attempt{req: &driver.Request{Name: "x"}}
	mustLock(t, l, "x", locker.WithSlots(2))
	for range 2 {
		if g, _, err := l.store.look(t.Context(), a, false); g.Count > 0 || !errors.Is(err, locker.ErrMismatch) {
			t.Errorf("%+v, %v, want ErrMismatch", g, err)
		}
		if err := a.file.showWaiting(a.req); err != nil {
			t.Fatal(err)
		}
	}
	_ = a.file.drop()
}

// Who waits for a slot, and is stopped, keeps one that is free for a while, and no longer.
func TestSlotsAreGrantedThoughWhoWaitsForOneIsStopped(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	slot := locker.WithSlots(64)
	var held []*locker.Lock
	for range 64 {
		held = append(held, mustLock(t, newLocker(t, dir), "x", slot))
	}
	w := startWorker(t, "wait", dir, "x", "slots")
	until(t, "it waits", func() bool { return waiters(t, l, "x") == 1 })
	w.pause(t)
	mustBeKeptOut(t, l, slot)
	for _, lock := range held[1:] {
		mustUnlock(t, lock)
	}
	mustUnlock(t, mustTry(t, l, slot))
}

// One is granted a slot on a slow disk, another waits for that, and a third tries.
func TestTryLockWaitsForWhoDecidesBesideOneWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		slot := locker.WithSlots(3)
		l := newLocker(t, dir)
		mustUnlock(t, mustLock(t, l, "x", slot))
		reached, release := make(chan struct{}), make(chan struct{})
		watchFlush(t, once(func() { close(reached); <-release }))
		var all sync.WaitGroup
		hold := func() {
			if _, err := newLocker(t, dir).Lock(patience(t), "x", slot); err != nil {
				t.Error(err)
			}
		}
		all.Go(hold)
		<-reached
		all.Go(hold)
		until(t, "the second waits", func() bool { return waiters(t, l, "x") == 1 })
		time.AfterFunc(decideTime/2, func() { close(release) })
		mustTry(t, l, slot)
		all.Wait()
	})
}

// Nobody has the lock but a reader that was broken and is stopped, and a writer that waits is stopped.
func TestABrokenReaderAndAWriterThatIsStoppedKeepNobodyOut(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	reader := startWorker(t, "hold", dir, "x", "shared")
	number, err := fencing.ParseToken(reader.line(t))
	if err != nil {
		t.Fatal(err)
	}
	reader.pause(t)
	writer := startWorker(t, "wait", dir, "x", "")
	until(t, "it waits", func() bool { return waiters(t, l, "x") == 1 })
	writer.pause(t)
	if broken, err := l.BreakHolder(patience(t), "x", locker.Number(number)); !broken || err != nil {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	mustUnlock(t, mustTry(t, l, reading))
	mustUnlock(t, mustTry(t, l))
	mustUnlock(t, mustLock(t, l, "x", reading))
}

// They are so many that TryLock has to look again, for takeTurn waits for a millisecond. On a slow disk some may
// look for as long as TryLock does.
func TestThereIsRoomForAllWhoReadAtOnce(t *testing.T) {
	for what, opt := range map[string]locker.Option{"shared": reading, "slots": locker.WithSlots(locker.MaxSlots)} {
		dir := t.TempDir()
		n := 500
		if what == "slots" {
			n = 100
		}
		var taken atomic.Int32
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range n {
			l := newLocker(t, dir)
			all.Go(func() {
				<-begin
				asked := time.Now()
				_, err := l.TryLock(context.Background(), "x", opt)
				switch {
				case !errors.Is(err, locker.ErrTaken):
					if err != nil {
						t.Error(err)
					}
				case time.Since(asked) < decideTime:
					taken.Add(1)
				}
			})
		}
		close(begin)
		all.Wait()
		if taken.Load() > 0 {
			t.Errorf("%s: %d of %d were told too soon that the lock is taken", what, taken.Load(), n)
		}
	}
}

// A place is found soon, however many there are, and the file has room for the most there ever were.
func TestPlaceIsFoundSoonAmongMany(t *testing.T) {
	dir := t.TempDir()
	const n = 300
	for range n {
		mustLock(t, newLocker(t, dir), "x", reading)
	}
	f, err := openFile(newLocker(t, dir).store.path("x"), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.drop() }()
	if size := f.info.Size(); size != fileSize+(n+1)*slotSize {
		t.Errorf("the file has %d bytes, want %d records behind the %d", size, n+1, fileSize)
	}
	l := newLocker(t, dir)
	for range 3000 { // one more comes and goes
		mustUnlock(t, mustTry(t, l, reading))
	}
	if size := int64(len(readFile(t, l.store.path("x")))); size > fileSize+(n+n/4)*slotSize {
		t.Errorf("the file has %d records for %d readers", (size-fileSize)/slotSize, n+1)
	}
}

// looks counts how often who waits with this request looks in a second.
func looks(t *testing.T, l *Locker, requests ...*driver.Request) int {
	t.Helper()
	var n atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, req := range requests {
		all.Go(func() {
			a := &attempt{req: req}
			g, left, err := l.store.Acquire(ctx, a, func() context.Context { n.Add(1); return ctx })
			if g.Count > 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v, %v", g, err)
			}
			if left != driver.Nothing || a.open() {
				t.Error("something is left")
			}
		})
	}
	all.Wait()
	return int(n.Load())
}

func TestWhoWaitsForManyNamesOrSlotsLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l, other := newLocker(t, dir), newLocker(t, dir)
		var names []*driver.Request
		for k := range 320 {
			name := "name" + string(rune('a'+k))
			mustLock(t, other, name)
			names = append(names, &driver.Request{Name: name})
		}
		one, many := looks(t, l, names[0]), looks(t, l, names...)
		if one < 200 || many > 40*one || many < 8*one {
			t.Errorf("for one name it looks %d times in a second, for %d names %d times", one, len(names), many)
		}
		began := time.Now()
		if err := pause(t.Context(), 1e9); err != nil || time.Since(began) >= claimTime {
			t.Errorf("a pause of %v, %v: a newcomer would not let it try first", time.Since(began), err)
		}
		for range 320 {
			mustLock(t, newLocker(t, dir), "slots", locker.WithSlots(320))
		}
		if n := looks(t, l, &driver.Request{Name: "slots", Kind: locker.KindSlots, Slots: 320}); n > one/8 || n < 10 {
			t.Errorf("for one name it looks %d times in a second, for 320 slots %d times", one, n)
		}
	})
}

// A disk takes its time wherever a grant waits for it, and the context of the call ends.
func TestCallReturnsWhenItsContextEndsThoughTheDiskDoesNot(t *testing.T) {
	for at, what := range []string{"the new file", "the tokens", "the directory"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			reached, release := make(chan struct{}), make(chan struct{})
			var n atomic.Int32
			var kept *os.File // which the garbage collector would close
			watchFlush(t, func(f *os.File) error {
				if int(n.Add(1)) == at+1 {
					kept = f
					close(reached)
					<-release
				}
				return nil
			})
			l := newLocker(t, dir)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := l.Lock(ctx, "x")
				done <- err
			}()
			<-reached
			cancel()
			var err error
			select {
			case err = <-done:
			case <-time.After(10 * time.Second):
				t.Error("Lock waits for the disk")
				close(release)
				<-done
				return
			}
			if known := at == 0; errors.Is(err, locker.ErrOutcomeUnknown) == known || !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want ErrOutcomeUnknown: %v", err, !known)
			}
			close(release)
			until(t, "nothing is left", func() bool {
				if at > 0 && n.Load() < 3 {
					return false
				}
				fds, _ := descriptorsOf(t, dir)
				files, err := os.ReadDir(dir)
				return err == nil && len(fds) == 0 && len(files) == 1
			})
			mustUnlock(t, mustTry(t, newLocker(t, dir)))
			runtime.KeepAlive(kept)
		})
	}
}

// Break has put a new file in the place of the old one, and its context ends before that is on the disk.
func TestBreakReturnsWhenItsContextEndsThoughTheDiskDoesNot(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	lock := mustLock(t, l, "x", locker.WithTTL(time.Hour))
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var flushes atomic.Int32
	watchFlush(t, func(*os.File) error {
		if flushes.Add(1) == 3 { // after two new files
			cancel()
			<-release
		}
		return nil
	})
	done := make(chan error, 1)
	go func() {
		_, err := newLocker(t, dir).Break(ctx, "x")
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that the context was canceled", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Break waits for the disk")
	}
	close(release)
	until(t, "Break has done its work", func() bool { return flushes.Load() == 4 })
	if err := lock.Renew(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Renew: %v, want ErrLost", err)
	}
}

// While somebody breaks a lock that has slots, and waits for the disk, who wants a slot goes with that.
func TestSlotsAreNoMismatchWhileTheyAreBroken(t *testing.T) {
	dir := t.TempDir()
	slot := locker.WithSlots(2)
	l, other := newLocker(t, dir), newLocker(t, dir)
	mustBreak(t, l, false) // makes the file of breakers
	for range 2 {
		mustLock(t, newLocker(t, dir), "x", slot, locker.WithTTL(time.Hour))
	}
	waited, broke := make(chan error), make(chan error)
	go func() {
		_, err := other.Lock(patience(t), "x", slot)
		waited <- err
	}()
	until(t, "it waits", func() bool { return waiters(t, l, "x") == 1 })
	release, reached := make(chan struct{}), make(chan struct{})
	var n atomic.Int32
	watchFlush(t, func(*os.File) error {
		if n.Add(1) == 2 { // the new file is at its path, and is written to
			close(reached)
			<-release
		}
		return nil
	})
	go func() {
		_, err := l.Break(patience(t), "x")
		broke <- err
	}()
	<-reached
	time.AfterFunc(2*claimTime, func() { close(release) })
	mustTry(t, newLocker(t, dir), slot)
	for _, done := range []chan error{waited, broke} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The disk answers when somebody else has locked. Break has returned before, and leaves that one alone.
func TestBreakWhoseContextHasEndedLeavesTheNextHolder(t *testing.T) {
	for at, what := range []string{"the file of breakers", "the new file"} {
		dir := t.TempDir()
		l, other := newLocker(t, dir), newLocker(t, dir)
		lock := mustLock(t, l, "x", locker.WithTTL(time.Hour))
		reached, release, done := make(chan struct{}), make(chan struct{}), make(chan error)
		var n atomic.Int32
		watchFlush(t, func(*os.File) error {
			if int(n.Add(1)) == at+1 {
				close(reached)
				<-release
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := other.Break(ctx, "x")
			done <- err
		}()
		<-reached
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
		mustUnlock(t, lock)
		lock = mustLock(t, l, "x", locker.WithTTL(time.Hour))
		close(release)
		until(t, "the breaker has ended", func() bool {
			fds, _ := descriptorsOf(t, dir)
			return n.Load() == 3 && len(fds) == 1
		})
		mustUnlock(t, lock)
		if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
			t.Errorf("%s: %v, %v, want the lock and .break", what, files, err)
		}
	}
}

// Whoever asks again and again while a disk hangs leaves only so much there.
func TestCallsThatHaveLeftADiskThatHangsAreFew(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	release := make(chan struct{})
	var n atomic.Int32
	watchFlush(t, func(*os.File) error { n.Add(1); <-release; return errors.New("it hung") })
	for range 2 * mostBusy {
		ctx, cancel := contextOf(time.Millisecond)
		if lock, err := l.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locker.ErrOutcomeUnknown) {
			t.Fatalf("%v, %v", lock, err)
		}
		cancel()
	}
	if calls := n.Load(); calls > mostBusy {
		t.Errorf("%d calls wait for the disk", calls)
	}
	close(release)
	until(t, "nothing is left", func() bool {
		fds, _ := descriptorsOf(t, dir)
		files, err := os.ReadDir(dir)
		return err == nil && len(fds)+len(files) == 0
	})
}
