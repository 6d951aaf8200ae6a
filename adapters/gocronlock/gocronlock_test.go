package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

func newLocker(t *testing.T, locks locker.Locker, opts ...locker.Option) *Locker {
	t.Helper()
	l, err := NewLocker(locks, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// locked takes the lock of a job, as gocron does.
func locked(t *testing.T, l *Locker, name string) gocron.Lock {
	t.Helper()
	lock, err := l.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func wantTaken(t *testing.T, l *Locker, name string) {
	t.Helper()
	if _, err := l.Lock(t.Context(), name); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("the error is %v, want one that says taken", err)
	}
}

func TestAShortRunKeepsTheOthersOutForTheMinimumHold(t *testing.T) {
	for name, opts := range map[string][]locker.Option{"by default": nil, "of one's own": {locker.WithMinHold(time.Minute)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks, hold := lockertest.New(), DefaultMinHold
				if opts != nil {
					hold = time.Minute
				}
				a, b := newLocker(t, locks, opts...), newLocker(t, locks.Another(), opts...)
				if err := locked(t, a, "report").Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(hold - time.Millisecond)
				wantTaken(t, b, "report")
				wantTaken(t, a, "report") // a scheduler whose clock has stepped back
				time.Sleep(time.Millisecond)
				_ = locked(t, b, "report").Unlock(t.Context())
			})
		})
	}
}

// Goal: a request that is under way for longer than the others are kept out does not run the
// job once more, and one that is not has all the time that there is.
func TestALockThatTakesTooLongIsNotTaken(t *testing.T) {
	for hold, opts := range map[time.Duration][]locker.Option{DefaultMinHold: nil, 8 * time.Second: {locker.WithMinHold(8 * time.Second)}} {
		synctest.Test(t, func(t *testing.T) {
			locks := lockertest.New()
			late := locks.Another()
			a, b := newLocker(t, locks, opts...), newLocker(t, late, opts...)
			late.Link().Delay(hold + time.Second)
			_ = locked(t, a, "report").Unlock(t.Context())
			began := time.Now()
			_, err := b.Lock(t.Context(), "report")
			if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(fmt.Sprint(err), "half of the minimum hold") {
				t.Errorf("the error is %v", err)
			}
			if took := time.Since(began); took < hold/2 || took > hold*3/4 {
				t.Errorf("with a minimum hold of %v it took %v", hold, took)
			}
			late.Link().Delay(0)
			_ = late.Close() // waits for clean-ups
			time.Sleep(hold)
			info, err := locks.Inspect(t.Context(), "report")
			if err != nil || info.Held {
				t.Errorf("what came late is left: %+v, %v", info, err)
			}
		})
	}
}

// Goal: Unlock works as gocron calls it at shutdown, and does no harm if it is called twice.
func TestUnlockWorksAfterTheEndOfItsContextAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, lockertest.New(), locker.WithMinHold(time.Second))
		first := locked(t, l, "report")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		done := make(chan error)
		go func() { done <- first.Unlock(ended) }()
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		second := locked(t, l, "report")
		if err := first.Unlock(ended); err != nil {
			t.Error(err)
		}
		wantTaken(t, l, "report")
		if lock := l.lockOf("report"); lock == nil || lock.Err() != nil {
			t.Errorf("the second run has the lock %v", lock)
		}
		_ = second.Unlock(ended)
	})
}

// Goal: as with terms of a leader, a run that goes on without its lock keeps its own process
// from running the job beside it, and no other process.
func TestAProcessRunsAJobOnceAtATimeAlsoAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		l, other := newLocker(t, locks), newLocker(t, locks.Another())
		lost := locked(t, l, "report")
		locks.Lose("report")
		wantTaken(t, l, "report")
		_ = locked(t, other, "report").Unlock(t.Context())
		time.Sleep(DefaultMinHold)
		wantTaken(t, l, "report")
		if err := lost.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock says %v", err)
		}
		_ = locked(t, l, "report").Unlock(t.Context())
	})
}

// Goal: a run that still asks for its lock counts, too. If the second one asked as well, it
// could get the lock when the first has lost it, and run beside it.
func TestAJobThatAsksForItsLockIsNotBegunOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		l := newLocker(t, locks)
		locks.Link().Delay(time.Second)
		first := make(chan gocron.Lock)
		go func() { first <- locked(t, l, "report") }()
		synctest.Wait()
		began := time.Now()
		wantTaken(t, l, "report")
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v: it has asked the store", took)
		}
		_ = (<-first).Unlock(t.Context())
		_ = locks.Close() // waits for clean-ups
	})
}

// Method: 1,000 jobs run, a few of them in every way that has no lock.
func TestRunsThatHaveEndedLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		l := newLocker(t, locks, locker.WithMinHold(time.Minute)) // for a run may last for that, by the clock of the machine
		locks.Take("job 7")
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				if lock, err := l.Lock(t.Context(), fmt.Sprint("job ", i)); err == nil {
					_ = lock.Unlock(t.Context())
				} else if i != 7 {
					t.Error(err)
				}
			})
		}
		all.Wait()
		locks.Link().Refuse(errors.New("no permission"))
		for range 2 {
			if _, err := l.Lock(t.Context(), "refused"); !errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("the error is %v", err)
			}
		}
		locks.Link().Refuse(nil)
		_ = locks.Close() // waits for clean-ups
		if n := len(l.runs); n != 0 {
			t.Errorf("%d runs are left", n)
		}
	})
}

// broken is a backend whose client has a defect.
type broken struct{ locker.Locker }

func (broken) TryLock(context.Context, string, ...locker.Option) (*locker.Lock, error) {
	panic("a defect")
}

func TestABackendThatPanicsLeavesNothing(t *testing.T) {
	l := newLocker(t, broken{})
	for range 2 {
		func() {
			defer func() {
				if p := recover(); p != "a defect" {
					t.Errorf("the panic is %v", p)
				}
			}()
			_, err := l.Lock(t.Context(), "report")
			t.Errorf("the error is %v", err)
		}()
	}
}

func TestANameThatTheLockerRefusesIsAnErrorAtEachTick(t *testing.T) {
	locks := lockertest.New()
	l := newLocker(t, locks)
	for _, name := range []string{"", strings.Repeat("x", locker.MaxName+1), "a\x00b", "\xff"} {
		for range 2 {
			if lock, err := l.Lock(t.Context(), name); err == nil || errors.Is(err, locker.ErrTaken) || err.Error() != locker.CheckName(name).Error() {
				t.Errorf("%.9q: %v, %v", name, lock, err)
			}
		}
	}
	if n := locks.Link().Requests(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestOptionsThatDoNotFitAreRefused(t *testing.T) {
	for what, opt := range map[string]locker.Option{
		"WithWait":       locker.WithWait(time.Second),
		"WithGuard":      locker.WithGuard(noGuard{}),
		"WithShared":     locker.WithShared(),
		"WithSlots":      locker.WithSlots(2),
		"minimum hold":   locker.WithMaxHold(time.Second),
		"ttl":            locker.WithTTL(1),
		"zero Option":    {},
		"not positive":   locker.WithMinHold(0),
		"over the limit": locker.WithMinHold(48 * time.Hour),
	} {
		if l, err := NewLocker(lockertest.New(), opt); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v, %v", what, l, err)
		}
	}
}

// drowsy is a Locker whose process is paused when the lock has been granted.
type drowsy struct {
	locker.Locker
	pause time.Duration
}

func (d drowsy) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := d.Locker.TryLock(ctx, name, opts...)
	time.Sleep(d.pause)
	return lock, err
}

// The other instances count the minimum hold from the grant: after a pause of nearly all of it
// the next run would begin right behind this one. In real time, as driver.Now counts it.
func TestAPauseBeforeTheLockArrivesSkipsTheRun(t *testing.T) {
	const hold = 200 * time.Millisecond
	l := newLocker(t, drowsy{lockertest.New(), hold * 3 / 4}, locker.WithMinHold(hold))
	if lock, err := l.Lock(t.Context(), "report"); err == nil || lock != nil || !strings.Contains(err.Error(), "the process was paused") {
		t.Errorf("Lock of a process that was paused: %v", err)
	}
	if lock := l.lockOf("report"); lock != nil {
		t.Error("a run that was skipped is under way")
	}
}

// A user's default for all locks outranks the adapter's, and a default wait means nothing to a TryLock.
func TestTheDefaultsOfTheLockerCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		a := newLocker(t, locker.With(locks, locker.WithMinHold(time.Minute), locker.WithWait(time.Second)))
		began := time.Now()
		_ = locked(t, a, "report").Unlock(t.Context())
		lock, err := locks.Another().Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		if held := time.Since(began); held < time.Minute {
			t.Errorf("the lock was free after %v", held)
		}
		_ = lock.Unlock(t.Context())
	})
}
