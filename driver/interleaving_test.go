package driver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

// What follows are renewals that are under way while something else happens to their
// locks.

// answers lets a test answer renewals one by one, in any order.
type answers struct{ asked chan chan error }

func (a answers) renew(context.Context, string) error {
	answer := make(chan error)
	a.asked <- answer
	return <-answer
}

func TestAnOlderAnswerDoesNotShortenValidity(t *testing.T) {
	for name, first := range map[string]error{"worked": nil, "failed": errors.New("down")} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ *clock) {
				b := newBackend()
				a := answers{make(chan chan error, 2)}
				b.onRenew = a.renew
				l := b.grant(t, "a")
				pass(12 * time.Second)
				older := <-a.asked // sent at 10 by the Locker
				done := make(chan error, 1)
				go func() { done <- l.Renew(context.Background()) }()
				newer := <-a.asked // sent at 12 by hand
				b.answerRenewals(nil)
				newer <- nil
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				want := l.Deadline()
				older <- first
				synctest.Wait()
				if !l.Deadline().Equal(want) {
					t.Errorf("the older answer moved the deadline by %v", l.Deadline().Sub(want))
				}
				checkHeap(t, b.l)
				pass(time.Minute)
				wantHeld(t, l)
			})
		})
	}
}

// While the Locker's own renewal is under way, one by hand must not start a second
// one of the Locker's.
func TestARenewalByHandDoesNotStartASecondOne(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		a := answers{make(chan chan error, 2)}
		b.onRenew = a.renew
		l := b.grant(t, "a")
		pass(10 * time.Second)
		lockers := <-a.asked
		b.answerRenewals(always(errors.New("down")))
		if err := l.Renew(t.Context()); err == nil {
			t.Fatal("Renew worked")
		}
		pass(10 * time.Second)
		if b.renewed() != 2 {
			t.Errorf("%d renewals, want the Locker's and the one by hand", b.renewed())
		}
		b.answerRenewals(nil)
		lockers <- nil
		pass(time.Minute)
		wantHeld(t, l)
	})
}

func TestALockLostOrUnlockedWhileItIsRenewedStaysSo(t *testing.T) {
	for name, answer := range map[string]error{"renewed": nil, "failed": errors.New("down"), "lost": &locker.LostError{Reason: locker.ReasonTakenOver}} {
		for _, lasting := range []bool{false, true} { // a lasting one is outside the heap meanwhile
			virtual(t, func(t *testing.T, _ *clock) {
				b := newBackend()
				a := answers{make(chan chan error, 2)}
				b.onRenew = a.renew
				b.lasting = lasting
				lost, unlocked, held := b.grant(t, "lost"), b.grant(t, "unlocked"), b.grant(t, "held")
				pass(10 * time.Second)
				first := <-a.asked
				lose(lost, locker.ReasonSessionEnded, nil)
				if err := unlocked.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				checkHeap(t, b.l)
				b.answerRenewals(nil)
				first <- answer
				for range 2 { // the batch has three names
					next := <-a.asked
					next <- answer
				}
				synctest.Wait()
				checkHeap(t, b.l)
				wantReason(t, lost, locker.ReasonSessionEnded)
				if isLost(unlocked) {
					t.Errorf("%s: the unlocked lock was lost", name)
				}
				if place(lost) != -1 || place(unlocked) != -1 {
					t.Errorf("%s: places %d and %d in the heap", name, place(lost), place(unlocked))
				}
				if name == "lost" {
					wantReason(t, held, locker.ReasonTakenOver)
				} else {
					wantHeld(t, held)
					if place(held) < 0 {
						t.Errorf("%s: the held lock is watched over no longer", name)
					}
				}
				pass(time.Minute)
			})
		}
	}
}

// A renewal that hangs must keep neither other locks from being renewed nor
// those that are over from ending.
func TestARenewalThatHangsHoldsUpNobodyElse(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		hang := make(chan struct{})
		b.onRenew = func(_ context.Context, name string) error {
			if name == "hangs" {
				<-hang
			}
			return nil
		}
		hangs := b.grant(t, "hangs")
		over := b.grant(t, "over", locker.WithoutRenewal(), locker.WithTTL(20*time.Second))
		pass(6 * time.Second)
		other := b.grant(t, "other") // too young for the batch of the one that hangs
		pass(20*time.Second - Drift(20*time.Second) - 6*time.Second)
		wantReason(t, over, locker.ReasonExpired)
		pass(time.Minute)
		wantReason(t, hangs, locker.ReasonExpired)
		wantHeld(t, other)
		close(hang)
	})
}

// One look of the Locker's can find locks that are over behind one that is due.
func TestLocksThatAreOverEndThoughOthersAreDueBeforeThem(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		hang := make(chan struct{})
		b.onRenew = func(context.Context, string) error { <-hang; return nil }
		due := b.grant(t, "due") // at 10 s
		over := b.grant(t, "over", locker.WithTTL(12*time.Second), locker.WithoutRenewal())
		lost := over.Lost()
		c.jump(15 * time.Second)
		pass(longestSleep)
		select {
		case <-lost:
		default:
			t.Error("it is not lost")
		}
		wantHeld(t, due)
		close(hang)
	})
}

// A lock is both due and over when the machine slept through both: it is lost,
// and not renewed back to life.
func TestALockThatIsOverIsNotRenewed(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		alive := b.grant(t, "alive", locker.WithTTL(time.Minute)) // due at 20 s
		time.Sleep(15 * time.Second)
		old := b.grant(t, "old") // due at 25 s, over at 45
		c.jump(35 * time.Second)
		pass(longestSleep)
		wantReason(t, old, locker.ReasonExpired)
		wantHeld(t, alive)
		for _, names := range b.renewals {
			if slices.Contains(names, "old") {
				t.Errorf("renewed %v", names)
			}
		}
		if b.renewed() != 1 {
			t.Errorf("%d renewals, want one of the other", b.renewed())
		}
	})
}

// A lock acquired while the timer is set for a later one must not wait for it.
func TestAnEarlierLockMovesTheTimerForward(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.grant(t, "long", locker.WithTTL(time.Hour))
		short := b.grant(t, "short", locker.WithTTL(locker.MinTTL), locker.WithoutRenewal())
		lost := short.Lost()
		start := time.Now()
		<-lost
		if got, want := time.Since(start), locker.MinTTL-Drift(locker.MinTTL); got != want {
			t.Errorf("lost after %v, want %v", got, want)
		}
	})
}

// A call may learn that it is in front at the same moment as that it has to end. Then it does
// not end twice, and asks nobody.
func TestCallThatComesToTheFrontAndHasToEndAsksNobody(t *testing.T) {
	for name, want := range map[string]error{"its context ends": context.Canceled, "the Locker is closed": locker.ErrClosed} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ *clock) {
				b := newBackend()
				held := b.grant(t, "a")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := make(chan error, 1)
				go func() {
					_, err := b.l.Lock(ctx, "a")
					got <- err
				}()
				synctest.Wait()
				b.onAcquire = func(context.Context) error {
					t.Error("the store was asked")
					return nil
				}
				b.l.mu.Lock()
				if want == locker.ErrClosed {
					b.l.close()
				} else {
					cancel()
				}
				a := locker.HeldOf(contract.Key{}, held).(*turn[*hold]).lease
				b.l.end(&a.renewed)
				a.detach()
				b.l.advance(a.line)
				b.l.mu.Unlock()
				if err := <-got; !errors.Is(err, want) {
					t.Errorf("the call returned %v, want %v", err, want)
				}
				if len(b.l.lines) != 0 {
					t.Errorf("%d names are left", len(b.l.lines))
				}
			})
		})
	}
}

// Two renewals are answered after the loss, the second one during the clean-up after the first.
func TestRenewalThatIsAnsweredDuringACleanUpIsCleanedUpToo(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		a := answers{make(chan chan error, 2)}
		b.onRenew = a.renew
		removed := make(chan struct{})
		b.onRelease = func(context.Context, string) error {
			<-removed
			return nil
		}
		l := b.grant(t, "a")
		pass(10 * time.Second)
		first := <-a.asked
		go func() { _ = l.Renew(context.Background()) }()
		second := <-a.asked
		pass(validity - 10*time.Second)
		wantReason(t, l, locker.ReasonExpired)
		first <- nil
		synctest.Wait()
		second <- nil
		synctest.Wait()
		close(removed)
		synctest.Wait()
		if b.releases() != 2 || b.ended["a"] != 1 {
			t.Errorf("what two late renewals have left was removed %d times; the attempt was ended %d times", b.releases(), b.ended["a"])
		}
	})
}
