package gooselock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/gooselock"
)

// These tests play what several providers with one Locker do, on a virtual clock.

const schema = "schema"

func mustDo(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestASecondLockWaitsForTheUnlockOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLocker(t, newStore(t))
		var all sync.WaitGroup
		var mu sync.Mutex
		var inside, most int
		for range 50 {
			all.Go(func() {
				mustDo(t, "Lock", lock.Lock(t.Context(), nil))
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				inside--
				mu.Unlock()
				mustDo(t, "Unlock", lock.Unlock(t.Context(), nil))
			})
		}
		all.Wait()
		if most != 1 {
			t.Errorf("%d had the lock at the same time", most)
		}
	})
}

// The lock of A is lost, and B of the same process wants it. If B got it before A has called
// Unlock, that Unlock would unlock B's.
func TestTheUnlockOfALostLockLeavesTheNextHolderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		lock := newLocker(t, store)
		mustDo(t, "A's Lock", lock.Lock(t.Context(), nil))
		if !store.Lose(schema) {
			t.Fatal("A had no lock to lose")
		}
		hasB := make(chan error, 1)
		go func() { hasB <- lock.Lock(t.Context(), nil) }()
		time.Sleep(time.Minute)
		select {
		case err := <-hasB:
			t.Fatalf("B has the lock (%v), and A's Unlock is still to come", err)
		default:
		}
		if err := lock.Unlock(t.Context(), nil); !errors.Is(err, locker.ErrLost) {
			t.Errorf("A's Unlock: %v, want ErrLost", err)
		}
		mustDo(t, "B's Lock", <-hasB)
		if _, err := store.Another().TryLock(t.Context(), schema); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("another process's TryLock while B has the lock: %v, want ErrTaken", err)
		}
		mustDo(t, "B's Unlock", lock.Unlock(t.Context(), nil))
	})
}

// The store does not answer the first one, which waits for two seconds.
func TestOfTwoUnlocksAtTheSameTimeOneIsAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		lock := newLocker(t, store)
		mustDo(t, "Lock", lock.Lock(t.Context(), nil))
		store.Link().Cut()
		first := make(chan error, 1)
		go func() { first <- lock.Unlock(t.Context(), nil) }()
		synctest.Wait()
		began := time.Now()
		if err := lock.Unlock(t.Context(), nil); err == nil || time.Since(began) > 0 {
			t.Errorf("the second Unlock after %v: %v, want an error at once", time.Since(began), err)
		}
		if err := <-first; !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the first Unlock: %v, want ErrUnavailable", err)
		}
	})
}

// Unlock that comes while a Lock is still asking unlocks nothing, and lets nobody pass.
func TestUnlockDoesNotMeetALockThatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.Take(schema)
		lock := newLocker(t, store)
		got := make(chan error, 1)
		go func() { got <- lock.Lock(t.Context(), nil) }()
		synctest.Wait()
		if err := lock.Unlock(t.Context(), nil); err == nil {
			t.Error("Unlock has no error, and nothing was locked")
		}
		store.Free(schema)
		mustDo(t, "Lock", <-got)
		mustDo(t, "Unlock", lock.Unlock(t.Context(), nil))
	})
}

func TestAWaitInTheProcessEndsWithItsContextAndWithWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLocker(t, newStore(t), locker.WithWait(time.Second))
		mustDo(t, "Lock", lock.Lock(t.Context(), nil))
		began := time.Now()
		err := lock.Lock(t.Context(), nil)
		if !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("Lock after %v: %v, want ErrTaken after the second of WithWait", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = lock.Lock(ctx, nil)
		if !errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.Canceled) || strings.Count(err.Error(), context.Canceled.Error()) != 1 {
			t.Errorf("Lock: %v, want ErrTaken and the context's cause, once", err)
		}
		enough := errors.New("enough")
		ended, end := context.WithCancelCause(t.Context())
		end(enough)
		if err := lock.Lock(ended, nil); !errors.Is(err, enough) || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v, want the context's error and its cause", err)
		}
		mustDo(t, "Unlock", lock.Unlock(t.Context(), nil))
		if err := lock.Lock(ctx, nil); errors.Is(err, locker.ErrTaken) || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock of what is free, in a context that has ended: %v, want its cause alone", err)
		}
	})
}

// The first 600 ms are spent in the process, and the others at the store.
func TestWithWaitBoundsBothWaitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		lock := newLocker(t, store, locker.WithWait(time.Second))
		mustDo(t, "Lock", lock.Lock(t.Context(), nil))
		began, got := time.Now(), make(chan error, 1)
		go func() { got <- lock.Lock(t.Context(), nil) }()
		time.Sleep(600 * time.Millisecond)
		store.Take(schema)
		if err := lock.Unlock(t.Context(), nil); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock of a lock that was taken away: %v, want ErrLost", err)
		}
		if err := <-got; !errors.Is(err, locker.ErrTaken) || time.Since(began) != time.Second {
			t.Errorf("Lock after %v: %v, want ErrTaken after the second of WithWait", time.Since(began), err)
		}
	})
}

func TestAFailedLockLeavesTheNameFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		lock := newLocker(t, store, locker.WithWait(time.Minute))
		store.Link().Refuse(errors.New("no permission"))
		for range 3 {
			if err := lock.Lock(t.Context(), nil); !errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("Lock: %v, want ErrUnavailable", err)
			}
		}
		store.Link().Refuse(nil)
		mustDo(t, "Lock", lock.Lock(t.Context(), nil))
	})
}

// The first Lock asks the store, and the second waits for the first. Whoever waits must take the
// place of one that gave up.
func TestALockThatGaveUpWakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.Take(schema)
		lock := newLocker(t, store)
		ctx, giveUp := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- lock.Lock(ctx, nil) }()
		synctest.Wait()
		go func() { second <- lock.Lock(t.Context(), nil) }()
		synctest.Wait()
		giveUp()
		if err := <-first; !errors.Is(err, locker.ErrTaken) {
			t.Errorf("the first Lock: %v, want ErrTaken", err)
		}
		store.Free(schema)
		mustDo(t, "the second Lock", <-second)
		mustDo(t, "Unlock", lock.Unlock(t.Context(), nil))
	})
}

// panics is a Locker that panics once.
type panics struct {
	locker.Locker
	done bool
}

func (p *panics) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	if !p.done {
		p.done = true
		panic("defect")
	}
	return p.Locker.Lock(ctx, name, opts...)
}

func TestALockThatPanicsLeavesTheNameFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLocker(t, &panics{Locker: newStore(t)}, locker.WithWait(time.Minute))
		func() {
			defer func() { _ = recover() }()
			_ = lock.Lock(t.Context(), nil)
		}()
		mustDo(t, "Lock", lock.Lock(t.Context(), nil))
	})
}

func TestWhatACallerAppendsToItsOptionsLaterChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, opts := newStore(t), append(make([]locker.Option, 0, 9), locker.WithWait(time.Second))
		lock := newLocker(t, store, opts...)
		opts[0] = locker.WithShared()
		_ = append(opts, locker.WithShared())
		mustDo(t, "Lock", lock.Lock(t.Context(), nil))
		info, err := store.Inspect(t.Context(), schema)
		if err != nil || info.Kind != locker.KindExclusive {
			t.Errorf("the lock is %v (%v), want exclusive", info.Kind, err)
		}
		mustDo(t, "Unlock", lock.Unlock(t.Context(), nil))
	})
}

func TestOptionsThatKeepNobodyOutAreRefused(t *testing.T) {
	for what, opt := range map[string]locker.Option{
		"shared":            locker.WithShared(),
		"slots":             locker.WithSlots(2),
		"no option":         {},
		"too short a lease": locker.WithTTL(1),
	} {
		if _, err := gooselock.New(newStore(t), schema, opt); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := gooselock.New(newStore(t), ""); err == nil {
		t.Error("an empty name: no error")
	}
}
