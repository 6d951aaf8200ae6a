package locker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/contract"
)

// Method: the backend's client has a hook that panics, and the caller recovers.
func TestASetThatPanicsGivesBackWhatItCan(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onLock = func(name string) {
			if name == "c" {
				panic("at the third")
			}
		}
		if got := panics(func() { _, _ = LockAll(t.Context(), b, []string{"a", "b", "c"}) }); got != "at the third" {
			t.Errorf("panic %v", got)
		}
		if b.releases() != 2 {
			t.Errorf("released %q", b.released)
		}

		b.onLock, b.released = nil, nil
		b.onRelease = func(_ context.Context, name string) error {
			if name == "b" {
				panic("at the second")
			}
			return nil
		}
		set, err := LockAll(t.Context(), b, []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		if got := panics(func() { _ = set.Unlock(t.Context()) }); got != "at the second" {
			t.Errorf("panic %v", got)
		}
		if slices.Sort(b.released); !slices.Equal(b.released, []string{"a", "b", "c"}) {
			t.Errorf("released %q", b.released)
		}
		if err := set.Unlock(t.Context()); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("the second Unlock: %v", err)
		}

		b.onRelease = nil
		got := panics(func() {
			_ = DoAll(t.Context(), b, []string{"d", "e"}, func(context.Context, *Set) error { panic("in the function") })
		})
		if got != "in the function" || b.releases() != 5 {
			t.Errorf("panic %v, %d releases", got, b.releases())
		}
	})
}

func TestTheContextOfASetEndsBeforeTheStoreIsAsked(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		set, err := LockAll(t.Context(), b, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		b.onUnlock = func(name string) {
			if set.Err() == nil {
				t.Errorf("%q is unlocked while the Set is held", name)
			}
		}
		b.onRelease = func(_ context.Context, name string) error {
			if set.Context().Err() == nil {
				t.Errorf("%q is released while the context goes on", name)
			}
			return nil
		}
		if err := set.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestDoAllDoesNotCallItsFunctionWithALockThatIsLost(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.onLimit = func(h *hold, _ *contract.Settings) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.lose(ReasonExpired)
		}
		err := DoAll(t.Context(), b, []string{"a"}, func(context.Context, *Set) error {
			t.Error("called")
			return nil
		})
		if !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
}

// Goal: if another reader joined a lease whose end comes later, it would end for both.
func TestNobodyJoinsASharedLockThatWillHaveAMaximumHold(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		for _, c := range []struct {
			opts  []Option
			alone bool
		}{
			{[]Option{WithShared(), WithMaxHold(time.Minute)}, true},
			{[]Option{WithShared()}, false},
			{[]Option{given(contract.Settings{Alone: true})}, true}, // with a counter
			{[]Option{WithMaxHold(time.Minute), WithMinHold(time.Second), WithWait(time.Second)}, false},
		} {
			set, err := LockAll(t.Context(), newBackend(), []string{"a"}, c.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if req := set.Locks()[0].held.(*hold).req; req.Alone != c.alone || req.MaxHold+req.MinHold+req.Wait > 0 {
				t.Errorf("asked for %+v", req)
			}
		}
	})
}
