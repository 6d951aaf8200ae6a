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

// That there is no room is known without the turn.
func TestFullSlotsAreTakenWhoeverHasTheTurn(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	for range 2 {
		mustLock(t, newLocker(t, dir), "x", locker.WithSlots(2))
	}
	deciding(t, l)
	a := &attempt{req: &locker.Request{Name: "x", Kind: locker.Slots, Slots: 2}}
	if g, awaited, err := l.store.look(t.Context(), a, true); g.Count > 0 || awaited || err != nil {
		t.Errorf("%+v, awaited %v, %v, want taken", g, awaited, err)
	}
	_ = a.file.drop()
}

// A holder whose lock was broken keeps its place while it does not look.
func TestSlotOfOneWhoWasBrokenIsGranted(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	long := locker.WithTTL(time.Hour)
	first := mustLock(t, newLocker(t, dir), "x", locker.WithSlots(2), long)
	mustLock(t, newLocker(t, dir), "x", locker.WithSlots(2), long)
	if ok, err := l.Break(patience(t), "x", uint64(first.Token())); !ok || err != nil {
		t.Fatalf("Break: %v, %v", ok, err)
	}
	if lock := mustTry(t, l, locker.WithSlots(2)); lock.Slot() != 0 || lock.Token() <= first.Token() {
		t.Errorf("slot %d with token %d after %d", lock.Slot(), lock.Token(), first.Token())
	}
}

// All at once, and one after another decides.
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
				_, err := l.TryLock(context.Background(), "x", opt)
				if errors.Is(err, locker.ErrTaken) {
					taken.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		all.Wait()
		if taken.Load() > 0 {
			t.Errorf("%s: %d of %d were told that the lock is taken", what, taken.Load(), n)
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
}

// looks counts how often who waits with this request looks in a second.
func looks(t *testing.T, l *Locker, requests ...*locker.Request) int {
	t.Helper()
	var n atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, req := range requests {
		all.Go(func() {
			a := &attempt{req: req}
			g, err := l.store.Acquire(ctx, a, func() context.Context { n.Add(1); return ctx })
			if g.Count > 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v, %v", g, err)
			}
			if l.store.Left(a) {
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
		var names []*locker.Request
		for k := range 320 {
			name := "name" + string(rune('a'+k))
			mustLock(t, other, name)
			names = append(names, &locker.Request{Name: name})
		}
		one, many := looks(t, l, names[0]), looks(t, l, names...)
		if one < 200 || many > 40*one || many < 8*one {
			t.Errorf("for one name it looks %d times in a second, for %d names %d times", one, len(names), many)
		}
		for range 320 {
			mustLock(t, newLocker(t, dir), "slots", locker.WithSlots(320))
		}
		if n := looks(t, l, &locker.Request{Name: "slots", Kind: locker.Slots, Slots: 320}); n > one/8 || n < 10 {
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

// Break writes a new file. Its context may end before that is on the disk.
func TestBreakReturnsWhenItsContextEndsThoughTheDiskDoesNot(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	lock := mustLock(t, l, "x", locker.WithTTL(time.Hour))
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var flushes atomic.Int32
	watchFlush(t, func(*os.File) error { flushes.Add(1); cancel(); <-release; return nil })
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
	until(t, "Break has done its work", func() bool { return flushes.Load() == 4 }) // of two new files, what is in one, and the directory
	if err := lock.Renew(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Renew: %v, want ErrLost", err)
	}
}
