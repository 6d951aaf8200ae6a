package driver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
)

func TestRenewalKeepsALockForAsLongAsItWorks(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a")
		pass(10 * locker.DefaultTTL)
		wantHeld(t, l)
		if got := b.renewed(); got != 10*renewalsPerTTL {
			t.Errorf("%d renewals in ten TTLs, want %d", got, 10*renewalsPerTTL)
		}
	})
}

func TestRenewalGoesOnAfterClose(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = func(ctx context.Context, _ string) error { return ctx.Err() }
		l := b.grant(t, "a")
		_ = b.l.Close()
		pass(10 * locker.DefaultTTL)
		wantHeld(t, l)
	})
}

// The store may have started the new lease at any moment after the request was
// sent, so its validity counts from before.
func TestRenewalExtendsValidityFromBeforeItsRequest(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = func(context.Context, string) error { time.Sleep(4 * time.Second); return nil }
		l := b.grant(t, "a")
		pass(14 * time.Second) // sent after 10, answered after 14
		b.answerRenewals(always(errors.New("down")))
		if got, want := time.Until(l.Deadline()), 10*time.Second+validity-14*time.Second; got != want {
			t.Errorf("the deadline is %v away, want %v", got, want)
		}
		pass(10*time.Second + validity - 14*time.Second - time.Nanosecond)
		wantHeld(t, l)
		pass(time.Nanosecond)
		wantReason(t, l, locker.ReasonUnreachable)
	})
}

func TestTheNextRenewalIsAnIntervalAfterTheRequestOfTheLast(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = func(context.Context, string) error { time.Sleep(4 * time.Second); return nil }
		l := b.grant(t, "a")
		pass(20*time.Second - time.Nanosecond)
		if b.renewed() != 1 {
			t.Errorf("%d renewals before the second is due", b.renewed())
		}
		pass(time.Nanosecond)
		if b.renewed() != 2 {
			t.Errorf("%d renewals when the second is due", b.renewed())
		}
		lose(l, locker.ReasonForced, nil)
		pass(4 * time.Second)
	})
}

func TestAFailedRenewalIsTriedAgainSoonAndForgottenWhenItWorks(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = always(errors.New("down"))
		l := b.grant(t, "a")
		pass(10 * time.Second)
		b.answerRenewals(nil)
		pass(2*time.Second - time.Nanosecond)
		if b.renewed() != 1 {
			t.Errorf("%d renewals right after a failed one", b.renewed())
		}
		pass(time.Nanosecond)
		if b.renewed() != 2 {
			t.Errorf("%d renewals a fifth of an interval after a failed one, want 2", b.renewed())
		}
		b.answerRenewals(func(context.Context, string) error { time.Sleep(time.Minute); return nil })
		pass(validity)
		wantReason(t, l, locker.ReasonExpired) // and not locker.ReasonUnreachable: the last answer was a good one
		pass(time.Minute)
	})
}

// Who renews by hand may have less patience than the store needs, and may ask again and
// again.
//
//	twice a second a holder asks for a renewal in a context that has ended: of a lock with
//	a lease of its own, and of one on a session that others share
func TestARenewalByHandThatFailsPutsOffNoOther(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.answerRenewals(func(ctx context.Context, _ string) error {
			if end, _ := ctx.Deadline(); time.Until(end) < 2*time.Millisecond {
				return context.DeadlineExceeded
			}
			return nil
		})
		apart := b.grant(t, "a")
		b.open(t)
		hanging, beside := b.grant(t, "b"), b.grant(t, "c")
		for range 200 {
			pass(time.Second / 2)
			soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, _ = apart.Renew(soon), hanging.Renew(soon)
			cancel()
		}
		for _, l := range []*locker.Lock{apart, hanging, beside} {
			if err := l.Err(); err != nil {
				t.Errorf("the store has refused no renewal of the Locker's, and %v", err)
			}
		}
	})
}

// The interval of the shortest lease divided by five would still be a storm
// against a store that refuses at once.
func TestFailedRenewalsOfShortLocksAreNotAStorm(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = always(errors.New("down"))
		l := b.grant(t, "a", locker.WithTTL(locker.MinTTL))
		pass(locker.MinTTL)
		wantReason(t, l, locker.ReasonUnreachable)
		if b.renewed() < 3 || b.renewed() > 7 {
			t.Errorf("%d renewals in 64 ms, want one every 10 ms", b.renewed())
		}
	})
}

func TestARenewalByTheLockerIsGivenAnIntervalOfTheShortestLease(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		var left []time.Duration // one batch at a time
		b.onRenew = func(ctx context.Context, _ string) error {
			end, _ := ctx.Deadline()
			left = append(left, time.Until(end))
			return nil
		}
		b.grant(t, "long", locker.WithTTL(time.Minute))
		pass(12 * time.Second)
		b.grant(t, "short", locker.WithTTL(36*time.Second))
		pass(8 * time.Second)
		if len(left) != 2 || left[0] != 12*time.Second || left[1] != 12*time.Second {
			t.Errorf("the renewals of one batch had %v, want 12s each", left)
		}
	})
}

// A batch has the time of its shortest lease, so it must not be much shorter than the others.
func TestLeasesAreRenewedTogetherIfNoneIsMoreThanTwiceAsLong(t *testing.T) {
	for _, c := range []struct {
		first, other time.Duration // their TTLs; the first is due first
		later        time.Duration // is granted so much later than the longer
		together     bool
	}{
		{60 * time.Second, 30 * time.Second, 14 * time.Second, true},
		{60 * time.Second, 29 * time.Second, 14 * time.Second, false},
		{30 * time.Second, 60 * time.Second, time.Second, true},
		{30 * time.Second, 62 * time.Second, time.Second, false},
	} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			long, short := max(c.first, c.other), min(c.first, c.other)
			b.grant(t, "long", locker.WithTTL(long))
			pass(c.later)
			b.grant(t, "short", locker.WithTTL(short))
			for b.renewed() == 0 {
				pass(time.Second)
			}
			if first := b.renewals[0]; len(first) == 2 != c.together {
				t.Errorf("TTLs of %v, due first, and %v: %q are renewed", c.first, c.other, first)
			}
		})
	}
}

// A store that takes a second and a half to answer is too slow for a lease of
// three seconds. One of a minute must not be lost with it.
func TestShortLeasesDoNotTakeTheTimeOfLongOnes(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = func(ctx context.Context, _ string) error {
			select {
			case <-time.After(1500 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		long := b.grant(t, "long", locker.WithTTL(time.Minute))
		for range 100 {
			short := b.grant(t, "short", locker.WithTTL(3*time.Second))
			pass(2 * time.Second)
			if err := short.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		wantHeld(t, long)
		if err := long.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second) // a renewal under way ends
	})
}

// A holder that was told that the lock is lost must not hold it again, and the lease
// that the store has started must not keep others out.
func TestARenewalAnsweredTooLateDoesNotResurrectAndIsReleased(t *testing.T) {
	for name, see := range map[string]func(l *locker.Lock, c *clock){
		"told by the timer":       func(*locker.Lock, *clock) { pass(validity) },
		"no timer has fired":      func(_ *locker.Lock, c *clock) { pass(10 * time.Second); c.jump(validity - 10*time.Second) },
		"somebody looked at Err":  func(l *locker.Lock, c *clock) { pass(10 * time.Second); c.jump(validity - 10*time.Second); _ = l.Err() },
		"the store said it first": func(l *locker.Lock, _ *clock) { pass(10 * time.Second); lose(l, locker.ReasonExpired, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, c *clock) {
				b := newBackend()
				answer := make(chan struct{})
				b.onRenew = func(context.Context, string) error { <-answer; return nil }
				l := b.grant(t, "a")
				see(l, c)
				synctest.Wait()
				before := b.releases()
				close(answer)
				synctest.Wait()
				wantReason(t, l, locker.ReasonExpired)
				if got := b.releases() - before; got != 1 {
					t.Errorf("%d clean-ups of the renewed lease, want 1", got)
				}
				pass(time.Minute)
				wantReason(t, l, locker.ReasonExpired)
				if b.renewed() != 1 {
					t.Errorf("%d renewals, want none after the loss", b.renewed())
				}
			})
		})
	}
}

func TestALateRefusalIsNotReleased(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		answer := make(chan struct{})
		b.onRenew = func(context.Context, string) error {
			<-answer
			return &locker.LostError{Reason: locker.ReasonTakenOver}
		}
		l := b.grant(t, "a")
		pass(validity)
		before := b.releases()
		close(answer)
		synctest.Wait()
		wantReason(t, l, locker.ReasonExpired)
		if b.releases() != before {
			t.Error("a lock that the store does not have was released")
		}
	})
}

func TestARenewalAnsweredAfterUnlockChangesNothing(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		for name, err := range map[string]error{"renewed": nil, "lost": &locker.LostError{Reason: locker.ReasonTakenOver}, "failed": errors.New("down")} {
			b := newBackend()
			answer := make(chan struct{})
			b.onRenew = func(context.Context, string) error { <-answer; return err }
			l := b.grant(t, "a")
			pass(10 * time.Second)
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			close(answer)
			pass(time.Minute)
			if b.renewed() != 1 || b.releases() != 1 {
				t.Errorf("%s: %d renewals and %d releases, want 1 and 1", name, b.renewed(), b.releases())
			}
			if isLost(l) {
				t.Errorf("%s: an unlocked lock was lost", name)
			}
		}
	})
}

func TestRenewByHand(t *testing.T) {
	for name, opts := range map[string][]locker.Option{"with renewal": nil, "WithoutRenewal": {locker.WithoutRenewal()}} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ *clock) {
				b := newBackend()
				l := b.grant(t, "a", opts...)
				pass(9 * time.Second)
				if err := l.Renew(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := time.Until(l.Deadline()); got != validity || b.renewed() != 1 {
					t.Errorf("the deadline is %v away after %d renewals, want %v after 1", got, b.renewed(), validity)
				}
				pass(10*time.Second - time.Nanosecond)
				if b.renewed() != 1 {
					t.Error("renewed again before an interval was over")
				}
				pass(validity - 10*time.Second)
				wantHeld(t, l)
				pass(time.Nanosecond)
				if len(opts) == 0 {
					wantHeld(t, l)
				} else {
					wantReason(t, l, locker.ReasonExpired)
				}
			})
		})
	}
}

func TestRenewByHandReportsWhatTheStoreSaid(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a")
		down := errors.New("down")
		b.answerRenewals(always(down))
		if err := l.Renew(t.Context()); !errors.Is(err, down) {
			t.Errorf("Renew: %v", err)
		}
		wantHeld(t, l)
		b.answerRenewals(always(&locker.LostError{Reason: locker.ReasonTakenOver}))
		err := l.Renew(t.Context())
		wantReason(t, l, locker.ReasonTakenOver)
		if err != l.Err() {
			t.Errorf("Renew: %v, Err: %v", err, l.Err())
		}
		b.answerRenewals(nil)
		if err := l.Renew(t.Context()); err != l.Err() || b.renewed() != 2 {
			t.Errorf("Renew of a lost lock: %v after %d renewals", err, b.renewed())
		}
	})
}

func TestRenewByHandThatIsAnsweredTooLateIsALoss(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = func(context.Context, string) error { time.Sleep(validity + time.Second); return nil }
		l := b.grant(t, "a", locker.WithoutRenewal())
		if err := l.Renew(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Renew: %v", err)
		}
		wantReason(t, l, locker.ReasonExpired)
		synctest.Wait()
		if b.releases() != 2 {
			t.Errorf("%d clean-ups, want one at the loss and one of the renewed lease", b.releases())
		}
	})
}

func TestRenewByHandHandsOnItsContext(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = silent
		l := b.grant(t, "a", locker.WithoutRenewal())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Renew(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Renew: %v", err)
		}
		wantHeld(t, l)
		pass(validity)
		wantReason(t, l, locker.ReasonUnreachable)
	})
}

func TestRenewByHandExtendsValidityFromBeforeItsRequest(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = func(context.Context, string) error { time.Sleep(4 * time.Second); return nil }
		l := b.grant(t, "a", locker.WithoutRenewal())
		pass(10 * time.Second)
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := time.Until(l.Deadline()), validity-4*time.Second; got != want {
			t.Errorf("the deadline is %v away, want %v", got, want)
		}
	})
}

func TestAFailedRenewByHandIsTriedAgainSoon(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRenew = always(errors.New("down"))
		l := b.grant(t, "a", locker.WithTTL(300*time.Millisecond)) // due after 100 ms
		_ = l.Renew(t.Context())
		b.answerRenewals(nil)
		pass(20 * time.Millisecond)
		if b.renewed() != 2 {
			t.Errorf("%d renewals a fifth of an interval later, want 2", b.renewed())
		}
	})
}

func TestRenewByHandDoesNotGoBeyondMaxHold(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		l := newBackend().grant(t, "a", locker.WithoutRenewal(), locker.WithMaxHold(35*time.Second))
		pass(20 * time.Second)
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := time.Until(l.Deadline()); got != 15*time.Second {
			t.Errorf("the deadline is %v away, want 15s", got)
		}
	})
}

// miscounting answers another number of renewals than it was asked for.
type miscounting struct {
	*backend
	answers int
}

func (m miscounting) Renew(context.Context, []*hold) []error { return make([]error, m.answers) }

func TestAWrongNumberOfAnswersPanics(t *testing.T) {
	for _, n := range []int{0, 2} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			b.l = New("backend", miscounting{b, n}, Options{Clock: ticking.now})
			l := b.grant(t, "a", locker.WithoutRenewal())
			want := fmt.Sprintf("backend: the renewal answered %d errors for 1 locks", n)
			if got := panics(func() { _ = l.Renew(t.Context()) }); got != want {
				t.Errorf("panic %v, want %q", got, want)
			}
		})
	}
}

// panics returns what f panics with.
func panics(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}
