package driver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
)

// validity is what a lease of the default TTL is believed in.
const validity = locker.DefaultTTL - locker.DefaultTTL/100 - 2*time.Millisecond

func TestLockIsLostAtEndOfValidityWhenRenewalHangs(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		answer := make(chan struct{})
		b.onRenew = func(context.Context, string) error { <-answer; return nil } // does not even heed its context
		l := b.grant(t, "a")
		ctx, lost := l.Context(), l.Lost()
		pass(validity - time.Nanosecond)
		wantHeld(t, l)
		if b.renewed() != 1 {
			t.Errorf("%d renewals, want the one that hangs", b.renewed())
		}
		pass(time.Nanosecond)
		select {
		case <-lost:
		default:
			t.Fatal("Lost is open at the end of validity")
		}
		if ctx.Err() == nil {
			t.Fatal("Context is alive at the end of validity")
		}
		wantReason(t, l, locker.ReasonExpired)
		close(answer)
	})
}

func TestLockWithoutRenewalExpires(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a", locker.WithoutRenewal())
		if got := time.Until(l.Deadline()); got != validity {
			t.Errorf("the deadline is %v away, want %v", got, validity)
		}
		pass(validity - time.Nanosecond)
		wantHeld(t, l)
		pass(time.Nanosecond)
		if lost := wantReason(t, l, locker.ReasonExpired); lost.Cause != nil {
			t.Errorf("cause %v", lost.Cause)
		}
		if b.renewed() != 0 || b.releases() != 1 {
			t.Errorf("the store was asked for %d renewals, want none, and %d clean-ups, want 1", b.renewed(), b.releases())
		}
	})
}

func TestLockIsLostAsUnreachableWithItsCauseWhenTheStoreDoesNotAnswer(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a")
		cause := errors.New("connection refused")
		b.answerRenewals(always(cause))
		pass(validity - time.Nanosecond)
		wantHeld(t, l)
		pass(time.Nanosecond)
		wantReason(t, l, locker.ReasonUnreachable)
		if !errors.Is(l.Err(), cause) || !errors.Is(l.Err(), locker.ErrLost) {
			t.Errorf("%v is not both locker.ErrLost and its cause", l.Err())
		}
	})
}

// Nobody could recover in the goroutine of a renewal, and the program would end.
func TestARenewalInWhichAHookPanicsHasFailed(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a")
		b.answerRenewals(func(context.Context, string) error { panic("a hook of the client's") })
		pass(validity - time.Nanosecond)
		wantHeld(t, l)
		pass(time.Nanosecond)
		if lost := wantReason(t, l, locker.ReasonUnreachable); lost.Cause == nil || !strings.Contains(lost.Cause.Error(), "panicked: a hook of the client's") {
			t.Errorf("the cause is %v", lost.Cause)
		}
	})
}

func TestARenewalThatEndsWithItsContextMakesTheLockUnreachable(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = silent
		l := b.grant(t, "a")
		pass(locker.DefaultTTL)
		wantReason(t, l, locker.ReasonUnreachable)
		if !errors.Is(l.Err(), context.DeadlineExceeded) {
			t.Errorf("cause of %v", l.Err())
		}
		if b.renewed() < 2 {
			t.Errorf("%d renewals were tried within a TTL", b.renewed())
		}
		pass(locker.DefaultTTL) // let the last one end
	})
}

func TestALossThatTheStoreTellsEndsTheLockAtOnce(t *testing.T) {
	for _, reason := range []locker.Reason{locker.ReasonTakenOver, locker.ReasonSessionEnded, locker.ReasonForced} {
		t.Run(reason.String(), func(t *testing.T) {
			virtual(t, func(t *testing.T, _ *clock) {
				b := newBackend()
				cause := errors.New("what the store said")
				b.onRenew = always(&locker.LostError{Reason: reason, Cause: cause}) // the backend need not know the name
				l := b.grant(t, "a")
				pass(locker.DefaultTTL/3 - time.Nanosecond)
				wantHeld(t, l)
				pass(time.Nanosecond)
				if lost := wantReason(t, l, reason); lost.Cause != cause {
					t.Errorf("cause %v", lost.Cause)
				}
				pass(time.Minute)
				if b.renewed() != 1 {
					t.Errorf("%d renewals, want none after the loss", b.renewed())
				}
			})
		})
	}
}

func TestLoseEndsTheLockAtOnceAndOnlyOnce(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a")
		cause := errors.New("session 7 has expired")
		lose(l, locker.ReasonSessionEnded, cause)
		if lost := wantReason(t, l, locker.ReasonSessionEnded); lost.Cause != cause {
			t.Errorf("cause %v", lost.Cause)
		}
		first := l.Err()
		lose(l, locker.ReasonForced, nil)
		pass(time.Minute)
		if l.Err() != first {
			t.Errorf("a second loss replaced the first: %v", l.Err())
		}
		if b.renewed() != 0 {
			t.Error("a lost lock was renewed")
		}
	})
}

func TestLoseAfterUnlockChangesNothing(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		l := newBackend().grant(t, "a")
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		lose(l, locker.ReasonForced, nil)
		if err := l.Err(); !errors.Is(err, locker.ErrUnlocked) || errors.Is(err, locker.ErrLost) {
			t.Errorf("Err is %v", l.Err())
		}
		if isLost(l) {
			t.Error("Lost is closed")
		}
	})
}

func TestMaxHoldEndsTheLockThoughRenewalsWorkAndFreesItInTheStore(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a", locker.WithMaxHold(time.Minute))
		pass(time.Minute - time.Nanosecond)
		wantHeld(t, l)
		if b.renewed() < 3 {
			t.Errorf("%d renewals", b.renewed())
		}
		if got := time.Until(l.Deadline()); got != time.Nanosecond {
			t.Errorf("the deadline is %v away", got)
		}
		pass(time.Nanosecond)
		wantReason(t, l, locker.ReasonMaxHold)
		if !slices.Equal(b.released, []string{"a"}) {
			t.Errorf("released %v, want a once", b.released)
		}
	})
}

func TestMaxHoldIsNotRenewedInItsLastLease(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a", locker.WithMaxHold(validity))
		pass(validity - time.Nanosecond)
		wantHeld(t, l)
		pass(time.Nanosecond)
		wantReason(t, l, locker.ReasonMaxHold)
		if b.renewed() != 0 {
			t.Errorf("%d renewals of a lock that ends before its lease", b.renewed())
		}
	})
}

func TestMaxHoldLongerThanTheValidityStillNeedsRenewal(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = always(errors.New("down"))
		l := b.grant(t, "a", locker.WithMaxHold(validity+time.Nanosecond))
		pass(validity)
		wantReason(t, l, locker.ReasonUnreachable)
	})
}

func TestValidityAndMaxHoldCountFromBeforeTheRequest(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.took = 20 * time.Second
		l := b.grant(t, "a", locker.WithoutRenewal())
		short := b.grant(t, "b", locker.WithMaxHold(25*time.Second))
		pass(5*time.Second - time.Nanosecond)
		wantHeld(t, short)
		pass(time.Nanosecond)
		wantReason(t, short, locker.ReasonMaxHold)
		pass(validity - 25*time.Second - time.Nanosecond)
		wantHeld(t, l)
		pass(time.Nanosecond)
		wantReason(t, l, locker.ReasonExpired)
	})
}

// After a suspension the clock has moved on and no timer has fired.
func TestErrReadsTheClockThoughNoTimerHasFired(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		l, m, n := b.grant(t, "a"), b.grant(t, "b"), b.grant(t, "c")
		c.jump(validity - time.Nanosecond)
		wantHeld(t, l)
		c.jump(time.Nanosecond)
		if err := m.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock after the end of validity: %v", err)
		}
		if err := n.Renew(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Renew after the end of validity: %v", err)
		}
		wantReason(t, l, locker.ReasonExpired)
		if b.renewed() != 0 || b.releases() != 3 {
			t.Errorf("the store was asked for %d renewals, want none, and %d clean-ups, want 3", b.renewed(), b.releases())
		}
	})
}

func TestALossIsReportedWithinASecondAfterASuspension(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		l := b.grant(t, "a", locker.WithTTL(time.Hour))
		lost, ctx := l.Lost(), l.Context()
		pass(500 * time.Millisecond)
		c.jump(2 * time.Hour)
		pass(time.Second)
		select {
		case <-lost:
		default:
			t.Error("Lost is open a second after the machine woke up")
		}
		if ctx.Err() == nil {
			t.Error("Context is alive a second after the machine woke up")
		}
	})
}

// A timer that the suspension has held back must not be taken for one that is
// about to fire: a lock acquired right after the machine woke up would miss its
// renewals until then.
func TestALockAcquiredRightAfterASuspensionIsRenewedInTime(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		b.grant(t, "long", locker.WithTTL(time.Hour))
		c.jump(10 * time.Minute)
		short := b.grant(t, "short", locker.WithTTL(300*time.Millisecond))
		pass(250 * time.Millisecond)
		if b.renewed() == 0 {
			t.Error("the short lock was not renewed")
		}
		pass(400 * time.Millisecond)
		wantHeld(t, short)
	})
}

func TestLastingLockHasNoEndAndIsOnlyLookedAt(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.lasting = true
		l := b.grant(t, "a")
		if !l.Deadline().IsZero() {
			t.Errorf("deadline %v", l.Deadline())
		}
		b.answerRenewals(always(errors.New("down")))
		pass(locker.DefaultTTL * 10)
		wantHeld(t, l)
		if b.renewed() < 30 {
			t.Errorf("%d looks in ten TTLs", b.renewed())
		}
		b.answerRenewals(always(&locker.LostError{Reason: locker.ReasonTakenOver}))
		pass(locker.DefaultTTL)
		wantReason(t, l, locker.ReasonTakenOver)
	})
}

func TestLastingLockWithAnEndIsFreedInTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		opt    locker.Option
		held   time.Duration
		reason locker.Reason
	}{
		"WithoutRenewal":     {locker.WithoutRenewal(), validity, locker.ReasonExpired},
		"WithMaxHold":        {locker.WithMaxHold(time.Hour), time.Hour, locker.ReasonMaxHold},
		"before any renewal": {locker.WithMaxHold(time.Second), time.Second, locker.ReasonMaxHold},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ *clock) {
				b := newBackend()
				b.lasting = true
				l := b.grant(t, "a", c.opt)
				pass(c.held - time.Nanosecond)
				wantHeld(t, l)
				pass(time.Nanosecond)
				if !isLost(l) {
					t.Error("at its end Lost is not closed")
				}
				wantReason(t, l, c.reason)
				if b.releases() != 1 {
					t.Errorf("%d releases, want 1: nothing else ends it in the store", b.releases())
				}
			})
		})
	}
}

// A lasting lock has no lease that would cover the time until its end.
func TestLastingLockIsLookedAtUntilItsMaxHold(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.lasting = true
		l := b.grant(t, "a", locker.WithMaxHold(25*time.Second))
		pass(24 * time.Second)
		wantHeld(t, l)
		if b.renewed() != 2 {
			t.Errorf("%d looks in 24 s of a TTL of 30 s, want 2", b.renewed())
		}
	})
}

func TestEndIsTheLastCallForEachAttempt(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRelease = func(_ context.Context, name string) error {
			if b.ended[name] > 0 {
				t.Errorf("%q was released after its End", name)
			}
			return nil
		}
		unlocked, lost := b.grant(t, "unlocked"), b.grant(t, "lost")
		b.grant(t, "expired", locker.WithoutRenewal())
		b.grant(t, "held too long", locker.WithMaxHold(time.Second))
		if err := unlocked.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		lose(lost, locker.ReasonForced, nil)
		_ = lost.Unlock(t.Context())
		pass(time.Minute)
		for _, name := range []string{"unlocked", "lost", "expired", "held too long"} {
			if b.ended[name] != 1 {
				t.Errorf("%q was ended %d times", name, b.ended[name])
			}
		}
	})
}

func TestContextAndLostAskedForAfterALossAreOver(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		l := newBackend().grant(t, "a")
		lose(l, locker.ReasonForced, nil)
		if l.Context().Err() == nil || context.Cause(l.Context()) != l.Err() {
			t.Errorf("cause %v", context.Cause(l.Context()))
		}
		if !isLost(l) {
			t.Error("Lost is open")
		}
		if lost, ctx := l.Lost(), l.Context(); lost != l.Lost() || ctx != l.Context() {
			t.Error("Lost or Context is another one at every call")
		}
	})
}

// The store grants, and says that the lock is gone, before the driver has seen the
// grant.
func TestLossThatOvertakesItsGrantIsNotForgotten(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onAcquire = func(context.Context) error {
			b.l.Lose("a", b.l.lines["a"].front.h, locker.ReasonForced, nil)
			return nil
		}
		wantReason(t, b.grant(t, "a"), locker.ReasonForced)
		b.onAcquire = nil
		wantHeld(t, b.grant(t, "a"))
	})
}

// The store grants, the answer is lost, the store takes the lock away and says so, and the
// waiter asks again: what it is granted then is not lost.
func TestLossOfAGrantThatWasNeverHeardIsNotTheNextOnes(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		s := &asksTwice{backend: newBackend()}
		s.l = New("backend", s, Options{Clock: ticking.now})
		l, err := s.l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Err(); err != nil {
			t.Errorf("the second grant is lost at birth: %v", err)
		}
	})
}

type asksTwice struct {
	*backend
	l     *Locker[*hold]
	asked int
}

func (s *asksTwice) Acquire(ctx context.Context, h *hold, wait Wait) (Grant, Left, error) {
	if s.asked++; s.asked == 1 {
		wait()
		s.l.Lose("a", h, locker.ReasonForced, nil) // was granted, and broken
		return Grant{}, Nothing, errors.New("no answer")
	}
	return Grant{First: 1, Count: 1, Since: s.l.Now()}, Nothing, nil
}

// The process may stall between its two readings of the time.
func TestDeadlineIsNotLaterThanTheEndOfBeliefThoughItsReaderStalls(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		var stall atomic.Int64
		b := newBackend()
		b.l = New("backend", b, Options{Clock: func() Instant {
			now := c.now()
			time.Sleep(time.Duration(stall.Load()))
			return now
		}})
		end := time.Now().Add(validity)
		l := b.grant(t, "a", locker.WithoutRenewal())
		stall.Store(int64(time.Second))
		if late := l.Deadline().Sub(end); late > 0 {
			t.Errorf("the deadline is %v after the end of belief", late)
		}
		stall.Store(0)
		pass(2 * time.Second) // a look of the timer's may be stalled, too
	})
}

func TestLossOfAnEarlierAttemptChangesNothing(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		earlier := b.grant(t, "a")
		unlock(t, earlier)
		l := b.grant(t, "a")
		lose(earlier, locker.ReasonForced, nil)
		wantHeld(t, l)
		unlock(t, l)
	})
}

// The next try would come after the end of validity.
func TestLossIsToldInTimeThoughARenewalHasJustFailed(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		lost := b.grant(t, "a").Lost()
		b.answerRenewals(always(errors.New("down"))) // tried at 10 s and each 2 s after that
		pass(validity)
		select {
		case <-lost:
		default:
			t.Error("at the end of validity Lost is not closed")
		}
	})
}

func TestReasonOfALossIsNotAFailureThatWasMadeGood(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		l := b.grant(t, "a")
		b.answerRenewals(always(errors.New("down")))
		pass(11 * time.Second)
		b.answerRenewals(nil)
		pass(2 * time.Second)
		c.jump(validity) // no renewal has failed since
		wantReason(t, l, locker.ReasonExpired)
	})
}

// A grant of local has 8 tokens where those of its file are ahead of the clock.
func TestTurnsOfALeaseAreAsManyAsItsTokens(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.count = 8
		held := b.grant(t, "a")
		first := held.Token()
		for i := range uint64(8) {
			granted := b.lockLater(t, "a")
			synctest.Wait()
			unlock(t, held)
			if held = <-granted; LeaseOf(held) == uint64(first) != (i < 7) {
				t.Errorf("turn %d, with token %d, is of the lease %d", i+2, held.Token(), LeaseOf(held))
			}
		}
	})
}

func TestMaximumHoldOfATurnThatWasPassedOnEndsItInTime(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.count = 64
		held, granted := b.grant(t, "a"), b.lockLater(t, "a", locker.WithMaxHold(time.Second))
		synctest.Wait()
		unlock(t, held)
		l := <-granted
		if LeaseOf(l) != LeaseOf(held) {
			t.Error("the lease was not passed on")
		}
		lost := l.Lost()
		pass(time.Second)
		select {
		case <-lost:
		default:
			t.Error("at the end of its maximum hold Lost is not closed")
		}
	})
}
