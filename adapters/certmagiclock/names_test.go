package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

const name = "invoices/42"

func newStore(t *testing.T) *lockertest.Locker {
	t.Helper()
	store := lockertest.New()
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func newLocks(t *testing.T, l locker.Locker, opts ...locker.Option) *names {
	t.Helper()
	locks, err := newNames(l, opts)
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

func mustDo(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestAnyGoroutineUnlocksByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		locks, other := newLocks(t, store), store.Another()
		mustDo(t, "Lock", locks.Lock(t.Context(), name))
		if _, err := other.TryLock(t.Context(), name); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("another process's TryLock: %v, want ErrTaken", err)
		}
		go func() { mustDo(t, "Unlock", locks.Unlock(t.Context(), name)) }()
		synctest.Wait()
		lock, err := other.TryLock(t.Context(), name)
		mustDo(t, "another process's TryLock after Unlock", err)
		mustDo(t, "its Unlock", lock.Unlock(t.Context()))
	})
}

func TestASecondLockOfANameWaitsForTheUnlockOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, newStore(t))
		var all sync.WaitGroup
		var mu sync.Mutex
		var inside, most int
		for range 50 {
			all.Go(func() {
				mustDo(t, "Lock", locks.Lock(t.Context(), name))
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				inside--
				mu.Unlock()
				mustDo(t, "Unlock", locks.Unlock(t.Context(), name))
			})
		}
		all.Wait()
		if most != 1 {
			t.Errorf("%d had the lock at the same time", most)
		}
	})
}

// The lock of A is lost, and B of the same process wants the name. If B got it before A
// has called Unlock, that Unlock would unlock B's.
func TestTheUnlockOfALostLockLeavesTheNextHolderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		locks := newLocks(t, store)
		mustDo(t, "A's Lock", locks.Lock(t.Context(), name))
		if !store.Lose(name) {
			t.Fatal("A had no lock to lose")
		}
		hasB := make(chan error, 1)
		go func() { hasB <- locks.Lock(t.Context(), name) }()
		time.Sleep(time.Minute)
		select {
		case err := <-hasB:
			t.Fatalf("B has the lock (%v), and A's Unlock is still to come", err)
		default:
		}
		if err := locks.Unlock(t.Context(), name); !errors.Is(err, locker.ErrLost) {
			t.Errorf("A's Unlock: %v, want ErrLost", err)
		}
		mustDo(t, "B's Lock", <-hasB)
		if err := locks.lockOf(name).Err(); err != nil {
			t.Errorf("B's lock: %v", err)
		}
		mustDo(t, "B's Unlock", locks.Unlock(t.Context(), name))
	})
}

func TestUnlockWithoutLockIsAnError(t *testing.T) {
	locks := newLocks(t, newStore(t))
	if err := locks.Unlock(t.Context(), name); err == nil {
		t.Error("Unlock without Lock has no error")
	}
	if lock := locks.lockOf(name); lock != nil {
		t.Errorf("without Lock it holds %q", lock.Name())
	}
	mustDo(t, "Lock", locks.Lock(t.Context(), name))
	if err := locks.Unlock(t.Context(), "another name"); err == nil {
		t.Error("Unlock of another name has no error")
	}
	mustDo(t, "Unlock", locks.Unlock(t.Context(), name))
	if err := locks.Unlock(t.Context(), name); err == nil {
		t.Error("a second Unlock has no error")
	}
}

// The store does not answer the first one, which waits for two seconds.
func TestOfTwoUnlocksAtTheSameTimeOneIsAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		locks := newLocks(t, store)
		mustDo(t, "Lock", locks.Lock(t.Context(), name))
		store.Link().Cut()
		first := make(chan error, 1)
		go func() { first <- locks.Unlock(t.Context(), name) }()
		synctest.Wait()
		began := time.Now()
		if err := locks.Unlock(t.Context(), name); err == nil || time.Since(began) > 0 {
			t.Errorf("the second Unlock after %v: %v, want an error at once", time.Since(began), err)
		}
		if err := <-first; !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the first Unlock: %v, want ErrUnavailable", err)
		}
	})
}

// Unlock that comes while a Lock of the name is still asking unlocks nothing.
func TestUnlockDoesNotMeetALockThatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.Take(name)
		locks := newLocks(t, store)
		got := make(chan error, 1)
		go func() { got <- locks.Lock(t.Context(), name) }()
		synctest.Wait()
		if err := locks.Unlock(t.Context(), name); err == nil {
			t.Error("Unlock has no error, and nothing was locked")
		}
		store.Free(name)
		mustDo(t, "Lock", <-got)
		mustDo(t, "Unlock", locks.Unlock(t.Context(), name))
	})
}

func TestAWaitInTheProcessEndsWithItsContextAndWithWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, newStore(t), locker.WithWait(time.Second))
		mustDo(t, "Lock", locks.Lock(t.Context(), name))
		began := time.Now()
		err := locks.Lock(t.Context(), name)
		if !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("Lock after %v: %v, want ErrTaken after the second of WithWait", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = locks.Lock(ctx, name)
		if !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.Canceled) || strings.Count(err.Error(), context.Canceled.Error()) != 1 {
			t.Errorf("Lock: %v, want ErrTaken and the context's cause, once", err)
		}
		enough := errors.New("enough")
		told, tell := context.WithCancelCause(t.Context())
		tell(enough)
		if err := locks.Lock(told, name); !errors.Is(err, enough) || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v, want the context's error and its cause", err)
		}
		if err := locks.TryLock(t.Context(), name); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock: %v, want ErrTaken", err)
		}
		mustDo(t, "Unlock", locks.Unlock(t.Context(), name))
		mustDo(t, "TryLock, though WithWait was given", locks.TryLock(t.Context(), name))
	})
}

func TestAFailedLockLeavesTheNameFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		locks := newLocks(t, store)
		store.Link().Refuse(errors.New("no permission"))
		for range 3 {
			if err := locks.Lock(t.Context(), name); !errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("Lock: %v, want ErrUnavailable", err)
			}
		}
		store.Link().Refuse(nil)
		mustDo(t, "Lock", locks.Lock(t.Context(), name))
	})
}

// The first Lock asks the store, and the second waits for the first. Whoever waits must take the
// place of one that gave up.
func TestALockThatGaveUpWakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.Take(name)
		locks := newLocks(t, store)
		ctx, giveUp := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- locks.Lock(ctx, name) }()
		synctest.Wait()
		go func() { second <- locks.Lock(t.Context(), name) }()
		synctest.Wait()
		giveUp()
		if err := <-first; !errors.Is(err, locker.ErrTaken) {
			t.Errorf("the first Lock: %v, want ErrTaken", err)
		}
		store.Free(name)
		mustDo(t, "the second Lock", <-second)
		mustDo(t, "Unlock", locks.Unlock(t.Context(), name))
	})
}

type panics struct{ locker.Locker }

func (panics) Lock(context.Context, string, ...locker.Option) (*locker.Lock, error) { panic("defect") }

func TestALockThatPanicsLeavesTheNameFree(t *testing.T) {
	store := newStore(t)
	locks := newLocks(t, panics{store})
	func() {
		defer func() { _ = recover() }()
		_ = locks.Lock(t.Context(), name)
	}()
	mustDo(t, "TryLock", locks.TryLock(t.Context(), name))
}

func TestRetakeReplacesALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		locks, other := newLocks(t, store), store.Another()
		mustDo(t, "Lock", locks.Lock(t.Context(), name))
		lost := locks.lockOf(name)
		store.Lose(name)

		theirs, err := other.TryLock(t.Context(), name)
		mustDo(t, "another process's TryLock", err)
		if err := locks.retake(t.Context(), name, lost); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("Retake of what another process has: %v, want ErrTaken", err)
		}
		mustDo(t, "its Unlock", theirs.Unlock(t.Context()))
		mustDo(t, "Retake", locks.retake(t.Context(), name, lost))
		if err := locks.lockOf(name).Err(); err != nil {
			t.Errorf("the lock that was retaken: %v", err)
		}
		mustDo(t, "Unlock", locks.Unlock(t.Context(), name))
		if err := locks.retake(t.Context(), name, lost); err == nil {
			t.Error("Retake after Unlock has no error")
		}
		theirs, err = other.TryLock(t.Context(), name)
		mustDo(t, "another process's TryLock after that", err)
		mustDo(t, "its Unlock", theirs.Unlock(t.Context()))

		mustDo(t, "the next Lock", locks.Lock(t.Context(), name))
		store.Lose(name)
		if err := locks.retake(t.Context(), name, lost); err == nil {
			t.Error("Retake for a lock that was unlocked has taken the place of the next one")
		}
	})
}

func TestNothingStaysOfAThousandNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, newStore(t))
		for i := range 1000 {
			mustDo(t, "Lock", locks.Lock(t.Context(), fmt.Sprint(i)))
		}
		for i := range 1000 {
			mustDo(t, "Unlock", locks.Unlock(t.Context(), fmt.Sprint(i)))
		}
		if n := len(locks.held); n != 0 {
			t.Errorf("%d names are still known", n)
		}
	})
}

func TestWhatACallerAppendsToItsOptionsLaterChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, opts := newStore(t), append(make([]locker.Option, 0, 9), locker.WithWait(time.Second))
		locks := newLocks(t, store, opts...)
		_ = append(opts, locker.WithShared())
		mustDo(t, "Lock", locks.Lock(t.Context(), name))
		if n := locks.lockOf(name).SharedToken(); n != 0 {
			t.Errorf("the lock is shared, with the number %d", n)
		}
		mustDo(t, "Unlock", locks.Unlock(t.Context(), name))
	})
}

func TestOptionsThatKeepNobodyOutAreRefused(t *testing.T) {
	for what, opt := range map[string]locker.Option{
		"shared":            locker.WithShared(),
		"slots":             locker.WithSlots(2),
		"no option":         {},
		"too short a lease": locker.WithTTL(1),
	} {
		if _, err := newNames(newStore(t), []locker.Option{opt}); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
