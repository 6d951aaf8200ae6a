package driver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

func TestProcessKeepsALockForItsMinimumHoldWhereTheStoreCannot(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a", locker.WithMinHold(time.Minute), locker.WithTTL(9*time.Second))
		pass(20 * time.Second)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		renewed := b.renewed()
		waited := make(chan time.Time, 1)
		go func() {
			next, err := b.l.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			waited <- time.Now()
			_ = next.Unlock(t.Context())
		}()
		began := time.Now()
		pass(39 * time.Second)
		if _, err := b.l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("TryLock before the minimum hold was over: %v", err)
		}
		if b.renewed() < renewed+10 || b.releases() != 0 {
			t.Errorf("%d renewals and %d releases before the minimum hold was over", b.renewed()-renewed, b.releases())
		}
		if isLost(l) || !errors.Is(l.Err(), locker.ErrUnlocked) {
			t.Errorf("a lock that was unlocked, and is kept, says %v", l.Err())
		}
		if got := (<-waited).Sub(began); got != 40*time.Second {
			t.Errorf("the next goroutine got the lock %v after Unlock", got)
		}
		pass(time.Second)
		if !errors.Is(l.Err(), locker.ErrUnlocked) || isLost(l) {
			t.Errorf("after its minimum hold a lock that was unlocked says %v", l.Err())
		}
		if b.ended["a"] != 3 || b.l.UnderWay(contract.Key{}) != 0 {
			t.Errorf("%d of 3 attempts have ended, %d clean-ups are under way", b.ended["a"], b.l.UnderWay(contract.Key{}))
		}
	})
}

func TestLockThatStaysForItsMinimumHoldEndsWithItsLease(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = func(context.Context, string) error { return errors.New("the store is silent") }
		l := b.grant(t, "a", locker.WithMinHold(time.Minute), locker.WithTTL(9*time.Second))
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		b.grant(t, "a")
		if slices.ContainsFunc(b.kept, func(d time.Duration) bool { return d != 0 }) {
			t.Errorf("a store that cannot keep a lock was asked to keep it for %v", b.kept)
		}
	})
}

func TestMinimumHoldThatIsOverOrShorterThanARenewalEndsInTime(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a", locker.WithMinHold(time.Second))
		pass(time.Second)
		if err := l.Unlock(t.Context()); err != nil || b.releases() != 1 {
			t.Errorf("Unlock after the minimum hold: %v; %d releases", err, b.releases())
		}
		l = b.grant(t, "a", locker.WithMinHold(2*time.Second), locker.WithTTL(time.Minute))
		pass(time.Second)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		b.grant(t, "a")
	})
}

// Nothing renews it, and the store cannot keep it, so the lease must have all of it left.
func TestLockWithoutRenewalHasItsMinimumHoldWhereTheStoreCannotKeepIt(t *testing.T) {
	const hold = 9890 * time.Millisecond // the TTL is valid for 9.898 s
	bare := []locker.Option{locker.WithoutRenewal(), locker.WithTTL(10 * time.Second)}
	opts := append(slices.Clone(bare), locker.WithMinHold(hold))
	for _, took := range []time.Duration{0, time.Second} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			b.count, b.lasting = 64, true
			first := b.grant(t, "a", bare...)
			b.took = took
			next := make(chan *locker.Lock)
			go func() {
				l, err := b.l.Lock(t.Context(), "a", opts...)
				if err != nil && (took == 0 || !errors.Is(err, locker.ErrUnavailable)) {
					t.Error(err)
				}
				next <- l
			}()
			pass(24 * time.Millisecond)
			if took > 0 {
				pass(time.Second) // it is not passed on, and the grant comes late
			}
			_ = first.Unlock(t.Context())
			l := <-next
			if l == nil {
				return
			}
			_ = l.Unlock(t.Context())
			pass(hold - time.Millisecond)
			if _, err := b.l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) {
				t.Errorf("a millisecond before the end of a minimum hold, where grants take %v: %v", took, err)
			}
		})
	}
}

func TestLockWithAMinimumHoldHasTheValidityThatIsWantedToo(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.took = 5 * time.Second
		_, err := b.l.TryLock(t.Context(), "a", locker.WithoutRenewal(), locker.WithMinHold(time.Second), locker.WithMinValidity(validity-4*time.Second))
		if !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("a second less than the wanted validity is left: %v", err)
		}
	})
}

func TestStoreIsAskedToKeepWhatIsLeftOfTheMinimumHold(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.keeps, b.took = true, 2*time.Second // it counts from the receipt of the grant
		for _, held := range []time.Duration{0, 20 * time.Second, 61 * time.Second} {
			l := b.grant(t, "a", locker.WithMinHold(time.Minute))
			pass(held)
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if want := []time.Duration{time.Minute, 40 * time.Second, 0}; !slices.Equal(b.kept, want) {
			t.Errorf("the store was asked to keep the lock for %v, want %v", b.kept, want)
		}
	})
}

// A Withdraw would free the lock early.
func TestKeepThatFailedIsRepeatedWithWhatRemainsAndNotWithdrawn(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.keeps = true
		answers := []error{errors.New("the reply was lost"), errors.New("the reply was lost"), nil}
		b.onRelease = func(context.Context, string) error {
			answer := answers[0]
			if answers = answers[1:]; answer != nil {
				pass(time.Second)
			}
			return answer
		}
		l := b.grant(t, "a", locker.WithMinHold(time.Minute), locker.WithMaxHold(time.Hour)) // something may be left of it
		if err := l.Unlock(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
			t.Fatal(err)
		}
		pass(time.Hour)
		if len(b.kept) != 3 || b.kept[0] != time.Minute || b.kept[1] != 59*time.Second || b.kept[2] >= 58*time.Second || b.kept[2] < 57*time.Second {
			t.Errorf("the store was asked to keep the lock for %v", b.kept)
		}
	})
}

func TestKeepOfALockThatTurnsOutToBeLostIsNotRepeated(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.keeps = true
		answers := []error{errors.New("the reply was lost"), &locker.LostError{Reason: locker.ReasonForced}}
		b.onRelease = func(context.Context, string) error { return answers[min(b.releases(), 2)-1] }
		l := b.grant(t, "a", locker.WithMinHold(time.Minute))
		if err := l.Unlock(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
			t.Fatal(err)
		}
		pass(time.Hour)
		if n := b.releases(); n != 2 {
			t.Errorf("the store was asked %d times to keep a lock, and said the second time that it was lost", n)
		}
	})
}

func TestLeaseIsNotPassedOnBeforeTheMinimumHoldOfItsTurnIsOver(t *testing.T) {
	for _, held := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			b.keeps, b.count = true, 64
			l := b.grant(t, "a", locker.WithMinHold(10*time.Millisecond))
			next := make(chan *locker.Lock)
			go func() {
				lock, err := b.l.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
				}
				next <- lock
			}()
			pass(held)
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			lock := <-next
			if passed := LeaseOf(lock) == LeaseOf(l); passed != (held > 10*time.Millisecond) {
				t.Errorf("unlocked after %v: the lease was passed on: %t", held, passed)
			}
			_ = lock.Unlock(t.Context())
		})
	}
}

func TestMinimumHoldOfATurnThatWasPassedOnCountsFromItsBeginning(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.keeps, b.count = true, 64
		first := b.grant(t, "a")
		next := make(chan *locker.Lock)
		go func() {
			lock, err := b.l.Lock(t.Context(), "a", locker.WithMinHold(time.Minute))
			if err != nil {
				t.Error(err)
			}
			next <- lock
		}()
		pass(20 * time.Millisecond)
		_ = first.Unlock(t.Context())
		lock := <-next
		_ = lock.Unlock(t.Context())
		if want := []time.Duration{time.Minute}; LeaseOf(lock) != LeaseOf(first) || !slices.Equal(b.kept, want) {
			t.Errorf("the store was asked to keep the lock for %v, want %v", b.kept, want)
		}
	})
}

// Goal: the clean-up of a lost lock reads the end of its minimum hold, in a goroutine of its own.
// Method: the race detector.
func TestForgettingAMinimumHoldLeavesALostLockAlone(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.keeps = true
		l := b.grant(t, "a", locker.WithMinHold(time.Hour))
		kept := make(chan struct{})
		b.onRelease = func(context.Context, string) error { <-kept; return nil }
		lose(l, locker.ReasonTakenOver, nil)
		locker.HeldOf(contract.Key{}, l).ForgetMinHold()
		close(kept)
		pass(time.Second)
		if len(b.kept) == 0 || b.kept[len(b.kept)-1] <= 0 {
			t.Errorf("the clean-up has the store keep a lost lock for %v", b.kept)
		}
	})
}
