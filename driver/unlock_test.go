package driver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
)

func TestALockThatIsBeingReleasedIsNoLongerHeldNorLost(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a")
		ctx, lost := l.Context(), l.Lost()
		b.onRelease = func(context.Context, string) error {
			if err := l.Err(); !errors.Is(err, locker.ErrUnlocked) || errors.Is(err, locker.ErrLost) {
				t.Errorf("Err while it is released: %v", l.Err())
			}
			if context.Cause(ctx) != l.Err() {
				t.Errorf("the cause of Context while it is released: %v", context.Cause(ctx))
			}
			return nil
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		select {
		case <-lost:
			t.Error("Unlock closed Lost")
		default:
		}
		if !errors.Is(l.Err(), locker.ErrUnlocked) || l.Context().Err() == nil {
			t.Errorf("after Unlock: Err %v, Context %v", l.Err(), l.Context().Err())
		}
		if b.renewed() != 0 {
			t.Error("an unlocked lock was renewed")
		}
	})
}

func TestUnlockDoesNotCloseLostThatNobodyHadAskedForBefore(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		l := newBackend().grant(t, "a")
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if isLost(l) {
			t.Error("Lost is closed")
		}
		if context.Cause(l.Context()) != l.Err() {
			t.Errorf("cause %v", context.Cause(l.Context()))
		}
	})
}

func TestUnlockAfterALossReportsItAndDoesNotAskTheStore(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		lost := b.grant(t, "lost")
		lose(lost, locker.ReasonForced, nil)
		expired := b.grant(t, "expired", locker.WithoutRenewal())
		pass(time.Minute)
		before := b.releases()
		for _, l := range []*locker.Lock{lost, expired} {
			for range 2 {
				if err := l.Unlock(t.Context()); err != l.Err() || !errors.Is(err, locker.ErrLost) {
					t.Errorf("Unlock of %s: %v", l.Name(), err)
				}
			}
		}
		if b.releases() != before {
			t.Errorf("released %v", b.released)
		}
	})
}

func TestALossThatTheReleaseFindsIsReported(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRelease = func(_ context.Context, name string) error {
			return &locker.LostError{Name: name, Reason: locker.ReasonForced, Cause: errNot}
		}
		l := b.grant(t, "a")
		if err := l.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("Unlock: %v", err)
		} else if lost := (*locker.LostError)(nil); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced || lost.Cause != errNot {
			t.Errorf("Unlock does not say why it was lost: %v", err)
		}
	})
}

func TestUnlockWithACancelledContextStillReleases(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		type key struct{}
		b := newBackend()
		asked := 0
		b.onRelease = func(ctx context.Context, _ string) error {
			if asked++; asked > 1 { // the clean-up after it
				return nil
			}
			if ctx.Err() != nil {
				t.Errorf("Release was called with a context that is over: %v", ctx.Err())
			}
			end, ok := ctx.Deadline()
			if !ok || time.Until(end) != releaseTime {
				t.Errorf("Release has until %v, %v; want %v", end, ok, releaseTime)
			}
			if ctx.Value(key{}) != "trace" {
				t.Error("the values of Unlock's context are gone")
			}
			<-ctx.Done()
			return ctx.Err()
		}
		l := b.grant(t, "a")
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
		cancel()
		start := time.Now()
		if err := l.Unlock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Unlock: %v", err)
		}
		if time.Since(start) != releaseTime {
			t.Errorf("it took %v", time.Since(start))
		}
		synctest.Wait()
		if b.releases() != 2 {
			t.Errorf("%d requests, want one release and one clean-up", b.releases())
		}
	})
}

func TestCleanUpIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRelease = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		l := b.grant(t, "a", locker.WithMaxHold(time.Second))
		pass(time.Second)
		wantReason(t, l, locker.ReasonMaxHold)
		pass(persistTime + tryTime)
		if n := b.l.UnderWay(contract.Key{}); n != 0 || b.releases() < 2 || b.releases() > int(persistTime/tryTime) {
			t.Errorf("%d releases, and %d are under way after %v", b.releases(), n, persistTime+tryTime)
		}
	})
}

// The context that Lock was called with means nothing to the lock.
func TestTheLockOutlivesTheContextItWasLockedWith(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		ctx, cancel := context.WithCancel(t.Context())
		l, err := b.l.Lock(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		own := l.Context()
		cancel()
		pass(time.Minute)
		wantHeld(t, l)
		if own.Err() != nil {
			t.Error("Context ended with the one that Lock was called with")
		}
		synctest.Wait()
	})
}

func TestTokenAndNameStayReadable(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.token = 41
		l := b.grant(t, "a")
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.Token() != 42 || l.Name() != "a" {
			t.Errorf("token %d, name %q", l.Token(), l.Name())
		}
	})
}

// What a holder shows of its place in the store must not become the next goroutine's.
func TestPinnedLeaseIsNotPassedOn(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			b.count = 64
			held := b.grant(t, "a")
			if pinned {
				if h, ok := b.l.Pin(held); !ok || h.req.Name != "a" {
					t.Errorf("Pin of a held lock: %v", ok)
				}
			}
			next := make(chan *locker.Lock)
			go func() {
				lock, err := b.l.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
				}
				next <- lock
			}()
			synctest.Wait()
			if err := held.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			lock := <-next
			if same := LeaseOf(lock) == LeaseOf(held); same == pinned {
				t.Errorf("pinned: %v, and the next goroutine has the same lease: %v", pinned, same)
			}
			_, lost := b.l.Pin(held)
			_, others := newBackend().l.Pin(lock)
			if lost || others {
				t.Errorf("Pin of a lock that was unlocked: %v; of another Locker's: %v", lost, others)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLockWhoseValidityHasEndedCannotBePinned(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		held := b.grant(t, "a")
		c.jump(locker.DefaultTTL) // no timer has seen it
		if _, ok := b.l.Pin(held); ok {
			t.Error("the place of a lock that has ended was shown as a condition")
		}
	})
}

// late is a context whose deadline has passed, and whose own timer has not fired.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now(), true }

// A client that heeds the deadline returns a moment before the context ends. That is no
// failure of the store for anybody else.
func TestDeadlineThatTheClientHeedsIsTheCallersOwn(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		asked, answer := make(chan struct{}), make(chan error)
		b.onAcquire = func(ctx context.Context) error {
			if _, early := ctx.Deadline(); !early {
				return nil
			}
			asked <- struct{}{}
			return <-answer
		}
		first := make(chan error)
		go func() {
			_, err := b.l.Lock(late{t.Context()}, "a")
			first <- err
		}()
		<-asked
		next := make(chan error)
		go func() {
			_, err := b.l.Lock(t.Context(), "a")
			next <- err
		}()
		synctest.Wait()
		answer <- errors.New("i/o timeout")
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "i/o timeout") {
			t.Errorf("the call whose deadline has passed: %v", err)
		}
		if err := <-next; err != nil {
			t.Errorf("the call behind it: %v", err)
		}
	})
}
