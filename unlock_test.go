package locker

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnlockReleasesOnceAndReportsItsFirstResult(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		refused := errors.New("refused")
		b.onRelease = func(context.Context, string) error { return refused }
		l := b.grant(t, "a")
		for range 3 {
			if err := l.Unlock(t.Context()); err != refused {
				t.Errorf("Unlock: %v", err)
			}
		}
		if b.releases() != 1 {
			t.Errorf("%d releases", b.releases())
		}
	})
}

// A deferred Unlock comes after the one that panicked, and its nil would say that
// the lock is free.
func TestUnlockAfterAReleaseThatDidNotReturnSaysThatNobodyKnows(t *testing.T) {
	for name, stop := range map[string]func(){
		"panic":  func() { panic("a hook of the client's") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ *clock) {
				b := newBackend()
				b.onRelease = func(context.Context, string) error { stop(); return nil }
				l := b.grant(t, "a")
				ended := make(chan any)
				go func() {
					defer func() { ended <- recover() }()
					_ = l.Unlock(t.Context())
					t.Error("Unlock returned")
				}()
				if panicked := <-ended; (panicked != nil) != (name == "panic") {
					t.Errorf("Unlock panicked with %v", panicked)
				}
				for range 2 {
					if err := l.Unlock(t.Context()); !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), `"a"`) {
						t.Errorf("Unlock: %v", err)
					}
				}
				if b.releases() != 1 {
					t.Errorf("%d releases", b.releases())
				}
			})
		})
	}
}

func TestConcurrentUnlocksReleaseOnceAndAllWaitForIt(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		const n = 20
		b := newBackend()
		var started, wg sync.WaitGroup
		var over atomic.Bool
		refused := errors.New("refused")
		b.onRelease = func(context.Context, string) error {
			started.Wait() // until everybody is about to unlock
			over.Store(true)
			return refused
		}
		l := b.grant(t, "a")
		started.Add(n)
		for range n {
			wg.Go(func() {
				started.Done()
				if err := l.Unlock(t.Context()); err != refused || !over.Load() {
					t.Errorf("Unlock: %v; the release was over: %v", err, over.Load())
				}
			})
		}
		wg.Wait()
		if b.releases() != 1 {
			t.Errorf("%d releases", b.releases())
		}
	})
}

func TestALockThatIsBeingReleasedIsNoLongerHeldNorLost(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		l := b.grant(t, "a")
		ctx, lost := l.Context(), l.Lost()
		b.onRelease = func(context.Context, string) error {
			if lost, ok := l.Err().(*LostError); !ok || lost.Reason != Unlocked {
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
		if !errors.Is(l.Err(), ErrLost) || l.Context().Err() == nil {
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
		Lose(lost, Forced, nil)
		expired := b.grant(t, "expired", WithoutRenewal())
		pass(time.Minute)
		for _, l := range []*Lock{lost, expired} {
			for range 2 {
				if err := l.Unlock(t.Context()); err != l.Err() || !errors.Is(err, ErrLost) {
					t.Errorf("Unlock of %s: %v", l.Name(), err)
				}
			}
		}
		if b.releases() != 0 {
			t.Errorf("released %v", b.released)
		}
	})
}

func TestALossThatTheReleaseFindsIsReported(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onRelease = func(_ context.Context, name string) error { return &LostError{Name: name, Reason: TakenOver} }
		l := b.grant(t, "a")
		if err := l.Unlock(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	})
}

func TestUnlockWithACancelledContextStillReleases(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		type key struct{}
		b := newBackend()
		b.onRelease = func(ctx context.Context, _ string) error {
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
		if time.Since(start) != releaseTime || b.releases() != 1 {
			t.Errorf("%d releases in %v", b.releases(), time.Since(start))
		}
	})
}

func TestWhatIsReleasedBehindTheCallersBackIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		var took time.Duration
		b.onRelease = func(ctx context.Context, _ string) error {
			start := time.Now()
			<-ctx.Done()
			took = time.Since(start)
			return ctx.Err()
		}
		l := b.grant(t, "a", WithMaxHold(time.Second))
		pass(time.Second)
		wantReason(t, l, MaxHold)
		pass(releaseTime)
		if took != releaseTime {
			t.Errorf("the release took %v, want to be ended after %v", took, releaseTime)
		}
	})
}

// The context that Lock was called with means nothing to the lock.
func TestTheLockOutlivesTheContextItWasLockedWith(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		ctx, cancel := context.WithCancel(t.Context())
		l, err := b.Lock(ctx, "a")
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

func TestNewLockPanicsOnMisuse(t *testing.T) {
	req, err := NewRequest("a")
	if err != nil {
		t.Fatal(err)
	}
	good := Hold{Request: req, Since: Now(), Keeper: newBackend().keeper, Release: func(context.Context) error { return nil }}
	for name, change := range map[string]func(*Hold){
		"Request": func(h *Hold) { h.Request = nil },
		"Since":   func(h *Hold) { h.Since = 0 },
		"Keeper":  func(h *Hold) { h.Keeper = nil },
		"Release": func(h *Hold) { h.Release = nil },
	} {
		h := good
		change(&h)
		if got, want := panics(func() { NewLock(h) }), "locker: NewLock without "+name; got != want {
			t.Errorf("panic %v, want %q", got, want)
		}
	}
}
