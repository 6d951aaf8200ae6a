package local

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/line"
)

// waiters returns how many processes wait, as the kernel has it.
func waiters(t testing.TB, l *Locker, name string) int {
	t.Helper()
	if !seesWaiters {
		t.Skip("waiters cannot be seen on this system")
	}
	info, err := l.Inspect(patience(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Waiters
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	lock := mustLock(t, newLocker(t, dir), "x")
	l := newLocker(t, dir)
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	for range 2 { // one looks at the file, the other waits behind it
		go func() {
			_, err := l.Lock(ctx, "x")
			done <- err
		}()
	}
	until(t, "both wait", func() bool { return waiters(t, l, "x") == 1 && inLine() == 1 })
	cancel(reason)
	for range 2 {
		if err := <-done; !errors.Is(err, locker.ErrTaken) || !errors.Is(err, reason) {
			t.Errorf("%v, want ErrTaken and the cause", err)
		}
	}
	if n := waiters(t, l, "x"); n != 0 {
		t.Errorf("%d are still seen to wait", n)
	}
	mustUnlock(t, lock)
	mustUnlock(t, mustLock(t, l, "x"))
}

func TestWaitingEndsWithCloseAndHoldsDoNot(t *testing.T) {
	dir := t.TempDir()
	other, l := newLocker(t, dir), newLocker(t, dir)
	lock, kept := mustLock(t, other, "x"), mustLock(t, l, "kept")
	done := make(chan error)
	for range 2 {
		go func() {
			_, err := l.Lock(t.Context(), "x")
			done <- err
		}()
	}
	until(t, "somebody waits", func() bool { return waiters(t, l, "x") == 1 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; !errors.Is(err, locker.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	}
	if _, err := l.TryLock(t.Context(), "y"); !errors.Is(err, locker.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	mustBeTaken(t, other, "kept")
	mustUnlock(t, kept)
	mustUnlock(t, mustLock(t, other, "kept"))
	mustUnlock(t, lock)
}

func TestContextThatIsOverAsksNothing(t *testing.T) {
	l := newLocker(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, lock := range []func(context.Context, string, ...locker.Option) (*locker.Lock, error){l.Lock, l.TryLock} {
		if _, err := lock(ctx, "x"); !errors.Is(err, context.Canceled) || errors.Is(err, locker.ErrTaken) {
			t.Errorf("%v, want Canceled alone", err)
		}
	}
}

// inLine counts the goroutines that wait for their turn.
func inLine() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for s := range strings.SplitSeq(string(stacks), "\n\n") {
		_, top, _ := strings.Cut(s, "\n")
		if strings.HasPrefix(top, "github.com/lockstile/locker/internal/line.(*Lines") && strings.Contains(s, " [select") {
			n++
		}
	}
	return n
}

// With nobody else there, the kernel's lock is never given back: the same open
// file goes through all hands, each of which draws its own token.
func TestLockIsHandedOverInOrderOfArrival(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	first := aheadOfClock(t, dir, "x")
	lock := mustLock(t, l, "x")
	const n = 40
	tokens := make([]fencing.Token, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			lock, err := l.Lock(t.Context(), "x")
			if err != nil {
				t.Error(err)
				return
			}
			tokens[i] = lock.Token()
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
		until(t, "it is in line", func() bool { return inLine() == i+1 })
	}
	mustUnlock(t, lock)
	all.Wait()
	for i, token := range tokens {
		if want := first + 2 + fencing.Token(i); token != want {
			t.Fatalf("token of arrival %d is %d, want %d", i, token, want)
		}
	}
}

// queued returns a new attempt that has its turn in the line of l as soon as
// whoever has it now leaves.
func queued(t *testing.T, l *Locker) (a *attempt, ready <-chan struct{}) {
	t.Helper()
	a, turn := &attempt{req: &locker.Request{Name: "x", Renew: true}}, make(chan struct{})
	before := inLine()
	go func() {
		a.turn, _ = l.lines.Enter(context.Background(), "x", a)
		close(turn)
	}()
	until(t, "it has the turn or is in line", func() bool {
		select {
		case <-turn:
			return true
		default:
			return inLine() > before
		}
	})
	return a, turn
}

// A waiter whose context ends just as it was picked cannot walk away any more:
// what it was handed goes on to the next, or back.
func TestHandedOverLockIsPassedOnByWhoHasGone(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	lock := mustLock(t, l, "x")
	heir, heirsTurn := queued(t, l)
	next, nextsTurn := queued(t, l)
	mustUnlock(t, lock)
	<-heirsTurn
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if lock, err := l.finish(heir, l.wait(ctx, heir)); !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, %v, want ErrTaken and Canceled", lock, err)
	}
	<-nextsTurn
	if next.file == nil || !next.file.held {
		t.Error("the lock was not passed on")
	}
	mustBeTaken(t, newLocker(t, dir), "x")
	if lock, err := l.finish(next, l.wait(ctx, next)); !errors.Is(err, locker.ErrTaken) {
		t.Fatalf("%v, %v, want ErrTaken", lock, err)
	}
	mustUnlock(t, mustLock(t, newLocker(t, dir), "x"))
}

func TestOtherProcessesGetTheLockFromABusyOne(t *testing.T) {
	dir := t.TempDir()
	busy, other := newLocker(t, dir), newLocker(t, dir)
	ctx, stop := context.WithCancel(patience(t))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				lock, err := busy.Lock(ctx, "x")
				if err != nil {
					return
				}
				if err := lock.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		lock, err := other.Lock(ctx, "x")
		if err != nil {
			t.Error(err)
			break
		}
		mustUnlock(t, lock)
	}
	stop()
	all.Wait()
}

// pausedWaiter waits for x and never takes it, as a process that is stopped.
func pausedWaiter(t *testing.T, l *Locker) *file {
	t.Helper()
	f, err := openOrCreate(l.path("x"), "x")
	if err == nil {
		err = f.wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.drop() })
	return f
}

func TestFreeLockIsLeftToWhoWaitsButNotForEver(t *testing.T) {
	if !seesWaiters {
		t.Skip("waiters cannot be seen on this system")
	}
	l := newLocker(t, t.TempDir())
	waiter := pausedWaiter(t, l)
	a := &attempt{req: &locker.Request{Name: "x"}}
	if s, err := l.try(a, true); s != awaited || err != nil {
		t.Errorf("a polite look: %v, %v, want awaited", s, err)
	}
	if err := a.file.drop(); err != nil {
		t.Fatal(err)
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
	if ok, err := waiter.take(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	mustBeTaken(t, l, "x")
	if n := waiters(t, l, "x"); n != 0 {
		t.Errorf("who has the lock is counted as %d waiters", n)
	}
}

func TestHandOverStopsWhereOthersWait(t *testing.T) {
	l := newLocker(t, t.TempDir())
	a, ready := queued(t, l)
	<-ready
	if s, err := l.try(a, false); s != granted || err != nil {
		t.Fatal(s, err)
	}
	if a.handOver(a.file) {
		t.Fatal("handed over to nobody")
	}
	heir, _ := queued(t, l)
	for range 128 {
		a.streak = a.streak.Next()
	}
	if seesWaiters && !a.handOver(a.file) {
		t.Error("not handed over though nobody else waits")
	}
	pausedWaiter(t, l)
	if a.handOver(a.file) || !heir.yield {
		t.Error("handed over once more though others wait")
	}
	a.streak = line.Streak{}.Next()
	if !a.handOver(a.file) || heir.streak != a.streak.Next() || heir.file != a.file {
		t.Error("not handed over within a streak, or not with one turn more")
	}
	if err := a.file.drop(); err != nil {
		t.Fatal(err)
	}
	a.turn.Leave()
}

func TestLockEndsWithItsTTLWithoutRenewal(t *testing.T) {
	dir := t.TempDir()
	lock := mustLock(t, newLocker(t, dir), "x", locker.WithoutRenewal(), locker.WithTTL(2*time.Second))
	next := mustLock(t, newLocker(t, dir), "x")
	if reason := mustBeLost(t, lock); reason != locker.Expired {
		t.Errorf("lost because %v", reason)
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock: %v, want ErrLost", err)
	}
	mustBeTaken(t, newLocker(t, dir), "x")
	mustUnlock(t, next)
}

func TestLockIsKeptPastItsTTL(t *testing.T) {
	dir := t.TempDir()
	l, other := newLocker(t, dir), newLocker(t, dir)
	lock := mustLock(t, l, "x", locker.WithTTL(locker.MinTTL))
	if !lock.Deadline().IsZero() {
		t.Errorf("deadline %v", lock.Deadline())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*locker.MinTTL)
	defer cancel()
	if _, err := other.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want DeadlineExceeded", err)
	}
	if err := lock.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	mustUnlock(t, lock)
	if err := lock.Unlock(t.Context()); err != nil {
		t.Errorf("the second Unlock: %v", err)
	}
}
