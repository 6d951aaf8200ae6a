package lockertest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

func TestWhatIsTakenIsNobodysUntilItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		a.Take("a")
		wantTaken(t, a, "after Take")
		next := waits(t, a.Another())
		a.Free("a")
		synctest.Wait()
		if len(next) == 0 {
			t.Fatal("Free has not let the waiter in")
		}
		held := <-next
		a.Free("a") // takes it from its holder
		mustUnlock(t, mustLock(t, a))
		if err := held.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock of a lock that Free has taken: %v", err)
		}
	})
}

func TestMessagesTakeAsLongAsTheLinkDelaysThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		for _, delay := range []time.Duration{100 * time.Millisecond, 0} {
			a.Link().Delay(delay)
			began := time.Now()
			mustUnlock(t, mustLock(t, a))
			if took := time.Since(began); took != 4*delay { // two requests, two answers
				t.Errorf("Lock and Unlock took %v, with a delay of %v", took, delay)
			}
		}
	})
}

func TestARefusalDoesNothingAndIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, full := lockertest.New(), errors.New("full")
		defer a.Close()
		a.Link().Refuse(full)
		if _, err := a.TryLock(t.Context(), "a"); !errors.Is(err, full) || !errors.Is(err, locker.ErrUnavailable) {
			t.Fatalf("TryLock of a store that refuses it: %v", err)
		}
		if n := a.Link().Requests(); n == 0 {
			t.Error("no request was counted")
		}
		a.Link().Refuse(nil)
		mustUnlock(t, mustLock(t, a.Another()))
		mustUnlock(t, mustLock(t, a))
	})
}
