package locker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker/internal/contract"
)

// between is somebody's own wrapper, which hands on what it is given.
type between struct{ Locker }

func (w between) Lock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return w.Locker.Lock(ctx, name, opts...)
}

func (w between) TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return w.Locker.TryLock(ctx, name, opts...)
}

// calls are the ways to lock the name a, each with what its lock was asked for.
var calls = map[string]func(ctx context.Context, l Locker, opts ...Option) (contract.Settings, error){
	"Lock": func(ctx context.Context, l Locker, opts ...Option) (contract.Settings, error) {
		return askedFor(l.Lock(ctx, "a", opts...))
	},
	"TryLock": func(ctx context.Context, l Locker, opts ...Option) (contract.Settings, error) {
		return askedFor(l.TryLock(ctx, "a", opts...))
	},
	"Do": func(ctx context.Context, l Locker, opts ...Option) (s contract.Settings, err error) {
		return s, Do(ctx, l, "a", func(_ context.Context, l *Lock) error { s, _ = askedFor(l, nil); return nil }, opts...)
	},
	"TryDo": func(ctx context.Context, l Locker, opts ...Option) (s contract.Settings, err error) {
		return s, TryDo(ctx, l, "a", func(_ context.Context, l *Lock) error { s, _ = askedFor(l, nil); return nil }, opts...)
	},
	"LockAll": func(ctx context.Context, l Locker, opts ...Option) (contract.Settings, error) {
		return askedForAll(LockAll(ctx, l, []string{"a"}, opts...))
	},
	"TryLockAll": func(ctx context.Context, l Locker, opts ...Option) (contract.Settings, error) {
		return askedForAll(TryLockAll(ctx, l, []string{"a"}, opts...))
	},
}

func askedFor(l *Lock, err error) (contract.Settings, error) {
	if err != nil {
		return contract.Settings{}, err
	}
	h := l.held
	if counted, ok := h.(withToken); ok {
		h = counted.Held
	}
	return h.(*hold).req, l.Unlock(context.Background())
}

func askedForAll(set *Set, err error) (contract.Settings, error) {
	if err != nil {
		return contract.Settings{}, err
	}
	return askedFor(set.Locks()[0], nil)
}

// wrapped are Lockers with the default TTL of a minute, and a default holder.
var wrapped = map[string]func(Locker) Locker{
	"With": func(l Locker) Locker { return With(l, WithTTL(time.Minute), WithHolder("default")) },
	"With over With": func(l Locker) Locker {
		return With(With(l, WithTTL(time.Minute), WithHolder("first")), WithHolder("default"))
	},
	"a counter over With": func(l Locker) Locker {
		return WithCounter(With(l, WithTTL(time.Minute), WithHolder("default")), &counter{}, 0)
	},
	"With over a counter": func(l Locker) Locker {
		return With(WithCounter(l, &counter{}, 0), WithTTL(time.Minute), WithHolder("default"))
	},
	"With below somebody's wrapper": func(l Locker) Locker {
		return between{With(l, WithTTL(time.Minute), WithHolder("default"))}
	},
	"With on both sides of somebody's wrapper": func(l Locker) Locker {
		return With(between{With(l, WithTTL(time.Hour), WithHolder("default"))}, WithTTL(time.Minute))
	},
}

func TestDefaultsHoldUnlessACallHasAnOptionOfItsOwn(t *testing.T) {
	for how, wrap := range wrapped {
		for what, call := range calls {
			virtual(t, func(t *testing.T, _ *clock) {
				l := wrap(newBackend())
				s, err := call(t.Context(), l)
				if err != nil || s.TTL != time.Minute || s.Holder == nil || *s.Holder != "default" {
					t.Errorf("%s, %s: %+v, %v", how, what, s, err)
				}
				s, err = call(t.Context(), l, WithHolder("mine"), WithoutRenewal())
				if err != nil || s.TTL != time.Minute || *s.Holder != "mine" || !s.NoRenewal {
					t.Errorf("%s, %s with options: %+v, %v", how, what, s, err)
				}
			})
		}
	}
}

// Goal: no option is evaluated twice, however many wrappers hand it on.
func TestOptionsAreParsedOnce(t *testing.T) {
	for how, wrap := range wrapped {
		for what, call := range calls {
			virtual(t, func(t *testing.T, _ *clock) {
				parsed := 0
				if _, err := call(t.Context(), wrap(newBackend()), Option{func(*contract.Settings) error { parsed++; return nil }}); err != nil || parsed != 1 {
					t.Errorf("%s, %s: an option was parsed %d times, %v", how, what, parsed, err)
				}
			})
		}
	}
}

func TestABadDefaultIsTheErrorOfEachCall(t *testing.T) {
	for says, bad := range map[string][]Option{
		"under the limit":         {WithTTL(0)},
		"the zero Option":         {{}},
		"WithGuard is no default": {WithGuard(&claims{}, "r")},
		"exclude each other":      {WithShared(), WithSlots(2)},
	} {
		for what, call := range calls {
			b := newBackend()
			for range 2 {
				if _, err := call(t.Context(), With(With(b, bad...), WithHolder("h"))); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `lock "a"`) || b.token != 0 {
					t.Errorf("%s with %q: %v; %d locks were granted", what, says, err, b.token)
				}
			}
		}
	}
}

func TestADefaultThatContradictsAnOptionIsAnError(t *testing.T) {
	b := newBackend()
	for what, call := range calls {
		if _, err := call(t.Context(), With(b, WithShared()), WithSlots(2)); err == nil || !strings.Contains(err.Error(), "exclude each other") || b.token != 0 {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := call(t.Context(), With(between{With(b, WithSlots(2))}), WithShared()); err == nil || !strings.Contains(err.Error(), "exclude each other") || b.token != 0 {
			t.Errorf("%s, with a wrapper between: %v", what, err)
		}
	}
}

// A default wait is for calls that wait. A call that has the option itself asks for too much.
func TestTryLockIgnoresAWaitAmongTheDefaults(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		l := With(newBackend(), WithWait(time.Second))
		for what, call := range calls {
			s, err := call(t.Context(), l)
			if waits := what == "Lock" || what == "Do"; err != nil || waits != (s.Wait == time.Second) {
				t.Errorf("%s: it waits for %v, %v", what, s.Wait, err)
			}
		}
	})
}

func TestADefaultObserverHearsOfEachEventOnce(t *testing.T) {
	for what, call := range calls {
		synctest.Test(t, func(t *testing.T) {
			bubble()
			l := With(WithCounter(Observe(newBackend(), func(Event) {}), &counter{}, 0), WithHolder("h"))
			if s, err := call(t.Context(), l); err != nil || len(s.Observers) != 1 {
				t.Errorf("%s: %d observers, %v", what, len(s.Observers), err)
			}
			own := WithObserver(func(Event) {})
			for range 2 { // the second call must not find the first one's
				if s, err := call(t.Context(), l, own); err != nil || len(s.Observers) != 2 {
					t.Errorf("%s with another: %d observers, %v", what, len(s.Observers), err)
				}
			}
		})
	}
}

// Method: the defaults come from an array with room behind them, and one call comes in the midst of another.
func TestCallsDoNotHearOfEachOther(t *testing.T) {
	three := []Option{WithObserver(func(Event) {}), WithObserver(func(Event) {}), WithObserver(func(Event) {})}
	b := newBackend()
	l := With(b, three...)
	its := new(contract.Settings)
	meanwhile := Option{func(s *contract.Settings) error { // the second call adds its own before the first is handed on
		its.Observers = slices.Clone(s.Observers)
		_, err := l.Lock(t.Context(), "b", WithObserver(func(Event) {}))
		return err
	}}
	first, err := l.Lock(t.Context(), "a", WithObserver(func(Event) {}), meanwhile)
	if err != nil {
		t.Fatal(err)
	}
	heard := first.held.(*hold).req.Observers
	if len(heard) != 4 || heard[3] != its.Observers[3] {
		t.Error("the observer of one call is told of another")
	}
}

// Goal: the bounds of a Set count from its last lock, also where they are defaults.
func TestDefaultBoundsOfASetCountFromItsLastLock(t *testing.T) {
	for how, wrap := range map[string]func(Locker) Locker{
		"With": func(l Locker) Locker { return With(l, WithMaxHold(time.Hour), WithMinHold(time.Minute)) },
		"a counter over With": func(l Locker) Locker {
			return WithCounter(With(l, WithMaxHold(time.Hour), WithMinHold(time.Minute)), &counter{}, 0)
		},
	} {
		b := newBackend()
		var asked, limits []contract.Settings
		b.onLimit = func(h *hold, s *contract.Settings) { asked, limits = append(asked, h.req), append(limits, *s) }
		if _, err := LockAll(t.Context(), wrap(b), []string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
		for _, s := range asked {
			if s.MaxHold != 0 || s.MinHold != 0 {
				t.Errorf("%s: a lock was asked for with %+v", how, s)
			}
		}
		if len(limits) != 2 || limits[0].MaxHold != time.Hour || limits[1].MinHold != time.Minute {
			t.Errorf("%s: limits %+v", how, limits)
		}
	}
}

// A wrapper between Do and the defaults hides what kind of lock it will be.
func TestAGuardThatDoesNotFitTheLockIsAnErrorWhenTheLockShowsIt(t *testing.T) {
	for says, c := range map[string]struct {
		hidden Option
		guard  Option
	}{
		"needs a fencing.SharedGuard": {WithShared(), WithGuard(writersAlone{&claims{}}, "r")},
	} {
		b := newBackend()
		err := Do(t.Context(), between{With(b, c.hidden)}, "a", func(context.Context, *Lock) error { t.Error("called"); return nil }, c.guard)
		if err == nil || !strings.Contains(err.Error(), says) || b.held["a"] || b.releases() != 1 {
			t.Errorf("%v, want %q; held %v, %d releases", err, says, b.held["a"], b.releases())
		}
	}
}

// A wrapper of somebody's may have a default TTL that Do and LockAll do not see.
func TestWhatGoesWithDefaultsBelowAWrapperIsNotRefused(t *testing.T) {
	for how, wrap := range map[string]func(Locker) Locker{
		"a wrapper":              func(l Locker) Locker { return between{With(l, WithTTL(time.Hour))} },
		"With over it":           func(l Locker) Locker { return With(between{With(l, WithTTL(time.Hour))}, WithHolder("h")) },
		"a counter over it":      func(l Locker) Locker { return WithCounter(between{With(l, WithTTL(time.Hour))}, &counter{}, 0) },
		"With, which shows them": func(l Locker) Locker { return With(l, WithTTL(time.Hour)) },
	} {
		for what, call := range calls {
			for _, opts := range [][]Option{{WithMinValidity(40 * time.Second)}, {WithoutRenewal(), WithMinHold(time.Minute)}} {
				virtual(t, func(t *testing.T, _ *clock) {
					if _, err := call(t.Context(), wrap(newBackend()), opts...); err != nil {
						t.Errorf("%s, %s: %v", how, what, err)
					}
				})
			}
		}
	}
}

func TestResourcesThatASlotCannotClaimAreNotForgotten(t *testing.T) {
	var guard claims
	b := newBackend()
	b.slot = 1
	err := Do(t.Context(), between{b}, "a", func(context.Context, *Lock) error { t.Error("called"); return nil }, WithGuard(&guard, "accounts"))
	if err == nil || !strings.Contains(err.Error(), "name no resources") || b.held["a"] {
		t.Errorf("%v; held %v", err, b.held["a"])
	}
}

func TestALockInWords(t *testing.T) {
	virtual(t, func(t *testing.T, c *clock) {
		b := newBackend()
		l := b.grant(t, "a", WithoutRenewal())
		if got, want := l.String(), `lock "a", token 1, valid for 29.698s`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		c.jump(time.Minute)
		if got, want := l.String(), `lock "a", token 1, lost: its validity ended before it was renewed`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		shared := b.grant(t, "b", WithShared())
		_ = shared.Unlock(t.Context())
		if got, want := shared.String(), `lock "b", shared, number 2, unlocked`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// Nothing says less of the store than that the lock was given back.
func TestALockThatWasUnlockedWasNotLost(t *testing.T) {
	l := newBackend().grant(t, "a")
	ctx := l.Context()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Err": l.Err(), "the context's cause": context.Cause(ctx)} {
		if !errors.Is(err, ErrUnlocked) || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%s is %v", what, err)
		}
	}
}
