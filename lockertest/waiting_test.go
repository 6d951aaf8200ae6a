package lockertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

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
