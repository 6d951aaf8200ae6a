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

func TestAStoreThatRefusesDoesNothingUntilItRefusesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, full := lockertest.New(), errors.New("full")
		defer a.Close()
		a.Link().Refuse(full)
		if _, err := a.TryLock(t.Context(), "a"); !errors.Is(err, full) || !errors.Is(err, locker.ErrUnavailable) {
			t.Fatalf("TryLock of a store that refuses it: %v", err)
		}
		a.Link().Refuse(nil)
		mustUnlock(t, mustLock(t, a.Another()))
		mustUnlock(t, mustLock(t, a))
	})
}

// The word that the lock is free is on a connection that breaks.
func TestAWaiterWhoseConnectionBreaksAsksAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		b := a.Another()
		held := mustLock(t, a)
		next := waits(t, b)
		b.Link().CutReplies()
		mustUnlock(t, held)
		synctest.Wait()
		b.Link().Heal()
		synctest.Wait()
		if len(next) == 0 {
			t.Error("it sleeps though the lock is free")
		}
		mustUnlock(t, <-next)
	})
}

// Who gives up a request that is not answered sends the next one over another connection.
func TestAConnectionThatStalledIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lockertest.New()
		a.Link().Stall()
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.TryLock(hasty, "a"); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("TryLock over a connection that stalls: %v", err)
		}
		gaveUp := time.Now()
		mustUnlock(t, mustLock(t, a))
		if took := time.Since(gaveUp); took > 0 {
			t.Errorf("the next one was answered after %v", took)
		}
	})
}
