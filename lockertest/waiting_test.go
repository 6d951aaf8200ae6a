package lockertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

// waits calls Lock in a goroutine, and returns what it has got when it has a place in the queue
// or the lock.
func waits(t *testing.T, l *lockertest.Locker) <-chan *locker.Lock {
	t.Helper()
	granted := make(chan *locker.Lock, 1)
	go func() {
		lock, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		granted <- lock
	}()
	synctest.Wait()
	return granted
}

func mustLock(t *testing.T, l *lockertest.Locker, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lock, err := l.Lock(t.Context(), "a", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func mustUnlock(t *testing.T, lock *locker.Lock) {
	t.Helper()
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// wantTaken fails the test if somebody gets the lock.
func wantTaken(t *testing.T, l *lockertest.Locker, when string) {
	t.Helper()
	lock, err := l.TryLock(t.Context(), "a")
	if !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock %s: %v", when, err)
	}
	if err == nil {
		mustUnlock(t, lock)
	}
}

// A waiter that has asked while the lock was held knows of the end of that lease. The lock is
// kept for less, or for longer than that.
func TestAWaiterHasTheLockAtTheEndOfAMinimumHold(t *testing.T) {
	for _, least := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			a := lockertest.New()
			began := time.Now()
			held := mustLock(t, a, locker.WithMinHold(least))
			next := waits(t, a.Another())
			mustUnlock(t, held)
			lock := <-next
			if after := time.Since(began); after != least {
				t.Errorf("a lock with a minimum hold of %v came to a waiter after %v", least, after)
			}
			mustUnlock(t, lock)
		})
	}
}

// The lock is reserved for the first waiter, which hears nothing of that, for half a second.
func TestAWaiterThatIsDeadHoldsUpTheNextForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		b, c := a.Another(), a.Another()
		held := mustLock(t, a)
		dead, next := waits(t, b), waits(t, c)
		b.Link().Cut()
		sent, began := b.Link().Requests(), time.Now()
		mustUnlock(t, held)
		synctest.Wait()
		info, err := a.Inspect(t.Context(), "a")
		list, _ := a.List(t.Context(), "")
		if info.Held || info.Waiters != 1 || len(list) != 0 || err != nil {
			t.Errorf("while it is reserved: %+v, %v, listed %+v", info, err, list)
		}
		lock := <-next
		if took := time.Since(began); took != 500*time.Millisecond || b.Link().Requests() != sent {
			t.Errorf("the next one has it after %v; the dead one has sent %d requests", took, b.Link().Requests()-sent)
		}
		mustUnlock(t, lock)
		b.Link().Heal()
		mustUnlock(t, <-dead)
	})
}

// It sends one request to ask, and one to take that back.
func TestACallThatHasEndedAsksNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		a.Take("a")
		if _, err := a.Lock(t.Context(), "a", locker.WithWait(time.Second)); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("Lock of what is taken: %v", err)
		}
		if n := a.Link().Requests(); n != 2 {
			t.Errorf("it has sent %d requests", n)
		}
	})
}

// A waiter asks, and its connection stalls. It asks again over another one, has the lock, and gives it
// back. Then the first request arrives.
func TestARequestThatArrivesAfterItsUnlockMakesNoLock(t *testing.T) {
	for how, unlock := range map[string]func(*testing.T, *lockertest.Locker, *locker.Lock){
		"by its holder": func(t *testing.T, _ *lockertest.Locker, held *locker.Lock) { mustUnlock(t, held) },
		"by its handle": func(t *testing.T, b *lockertest.Locker, held *locker.Lock) {
			h, err := held.Detach(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := locker.UnlockHandle(t.Context(), b, h); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := lockertest.New()
				defer a.Close()
				b := a.Another()
				defer b.Close()
				mustLock(t, b, locker.WithTTL(10*time.Second), locker.WithoutRenewal())
				got := waits(t, a)
				time.Sleep(9 * time.Second)
				a.Link().Stall()
				unlock(t, b, <-got)
				if requests, _ := a.Link().HeldBack(); requests == 0 {
					t.Error("no request is on its way: nothing is tested")
				}
				a.Link().Deliver()
				synctest.Wait()
				if _, err := b.TryLock(t.Context(), "a"); err != nil {
					t.Errorf("nobody holds it: %v", err)
				}
			})
		})
	}
}

func TestWhatIsTakenIsNobodysUntilItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		a.Take("a")
		if broken, err := a.Break(t.Context(), "a"); !broken || err != nil {
			t.Errorf("Break of what is taken: %v, %v", broken, err)
		}
		mustUnlock(t, mustLock(t, a, locker.WithWait(time.Second)))
		if broken, err := a.Break(t.Context(), "a"); broken || err != nil {
			t.Errorf("Break of what is free: %v, %v", broken, err)
		}
		a.Take("a")
		wantTaken(t, a, "after Take")
		next := waits(t, a.Another())
		a.Free("a")
		synctest.Wait()
		if len(next) == 0 {
			t.Fatal("Free has not let the waiter in")
		}
		mustUnlock(t, <-next)
	})
}

func TestFreeTakesTheLockFromWhoeverHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		held := mustLock(t, a)
		a.Another().Free("a")
		mustUnlock(t, mustLock(t, a.Another(), locker.WithWait(time.Second)))
		if err := held.Renew(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("a renewal by who held it before says: %v", err)
		}
	})
}

// The first reader has the longer lease.
func TestInspectSaysHowLongEachReaderHasAndThatTheLastEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		long, short := time.Minute, time.Second
		mustLock(t, a, locker.WithShared(), locker.WithoutRenewal(), locker.WithTTL(long))
		mustLock(t, a.Another(), locker.WithShared(), locker.WithoutRenewal(), locker.WithTTL(short))
		info, err := a.Inspect(t.Context(), "a")
		if err != nil || info.TimeLeft != long || len(info.Holders) != 2 || info.Holders[0].TimeLeft != long || info.Holders[1].TimeLeft != short {
			t.Errorf("%+v, %v", info, err)
		}
		time.Sleep(long)
	})
}

// Two Lockers share a lock. Lose of a third one finds nobody, and that of one of them leaves
// the other alone.
func TestLoseTakesTheLockFromNoOtherLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		b, c := a.Another(), a.Another()
		for _, opts := range [][]locker.Option{nil, {locker.WithShared()}} {
			held := mustLock(t, a, opts...)
			if b.Lose("a") {
				t.Error("Lose says that its Locker held what another one holds")
			}
			wantTaken(t, c, "after another Locker's Lose")
			mustUnlock(t, held) // it would be a loss
		}
		readers := []*locker.Lock{mustLock(t, a, locker.WithShared()), mustLock(t, b, locker.WithShared())}
		if !b.Lose("a") || readers[1].Err() == nil {
			t.Errorf("the lock of the Locker that loses it: %v", readers[1].Err())
		}
		wantTaken(t, c, "beside the other reader")
		mustUnlock(t, readers[0])
	})
}

// A lock that was unlocked is nobody's, though it stays taken for the rest of its minimum hold.
func TestLoseOfALockThatWasUnlockedFindsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		began := time.Now()
		mustUnlock(t, mustLock(t, a, locker.WithMinHold(time.Minute)))
		if a.Lose("a") {
			t.Error("Lose says that somebody held it")
		}
		mustUnlock(t, mustLock(t, a.Another()))
		if after := time.Since(began); after != time.Minute {
			t.Errorf("it came to somebody else after %v", after)
		}
	})
}

// The reason says who has the lock instead: after Break, and after a test's own Take.
func TestAHolderHearsThatItsLockWasBroken(t *testing.T) {
	for reason, take := range map[locker.Reason]func(ctx context.Context, l *lockertest.Locker) error{
		locker.ReasonForced:    func(ctx context.Context, l *lockertest.Locker) error { _, err := l.Break(ctx, "a"); return err },
		locker.ReasonTakenOver: func(_ context.Context, l *lockertest.Locker) error { l.Take("a"); return nil },
	} {
		for _, opts := range [][]locker.Option{nil, {locker.WithShared()}, {locker.WithSlots(2)}} {
			synctest.Test(t, func(t *testing.T) {
				a := lockertest.New()
				held := mustLock(t, a, opts...)
				if err := take(t.Context(), a.Another()); err != nil {
					t.Fatal(err)
				}
				lost := (*locker.LostError)(nil)
				if err := held.Renew(t.Context()); !errors.As(err, &lost) || lost.Reason != reason {
					t.Errorf("of a lock that was lost with the reason %q a renewal says: %v", reason.Code(), err)
				}
			})
		}
	}
}
