package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

func TestDoLocksCallsAndUnlocks(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.token = 6
		var used *Lock
		err := Do(t.Context(), b, "a", func(ctx context.Context, lock *Lock) error {
			used = lock
			wantHeld(t, lock)
			if lock.Name() != "a" || lock.Token() != 7 || ctx.Err() != nil || b.releases() != 0 {
				t.Errorf("name %q, token %d, context %v, %d releases", lock.Name(), lock.Token(), ctx.Err(), b.releases())
			}
			return nil
		})
		if err != nil || used == nil {
			t.Fatalf("Do: %v, called: %v", err, used != nil)
		}
		if b.releases() != 1 || used.Err() == nil {
			t.Errorf("%d releases; Err %v", b.releases(), used.Err())
		}
	})
}

func TestTryDoCallsNothingIfSomebodyHasTheLock(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		calls := 0
		fn := func(context.Context, *Lock) error { calls++; return nil }
		if err := TryDo(t.Context(), b, "a", fn); err != nil || b.tries != 1 || calls != 1 || b.releases() != 1 {
			t.Errorf("TryDo of a free name: %v; %d tries, %d calls, %d releases", err, b.tries, calls, b.releases())
		}
		held := b.grant(t, "a")
		if err := TryDo(t.Context(), b, "a", fn); !errors.Is(err, ErrTaken) || calls != 1 {
			t.Errorf("TryDo of a name that is taken: %v; %d calls", err, calls)
		}
		wantHeld(t, held)
	})
}

func TestDoUnlocksWhenTheFunctionPanics(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		got := panics(func() {
			_ = Do(t.Context(), b, "a", func(context.Context, *Lock) error { panic("at the disco") })
		})
		if got != "at the disco" {
			t.Errorf("panic %v", got)
		}
		if b.releases() != 1 {
			t.Errorf("%d releases", b.releases())
		}
	})
}

func TestDoJoinsTheErrorsOfTheFunctionAndOfUnlock(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		mine, refused := errors.New("mine"), errors.New("refused")
		b := newBackend()
		b.onRelease = func(context.Context, string) error { return refused }
		err := Do(t.Context(), b, "a", func(context.Context, *Lock) error { return mine })
		if !errors.Is(err, mine) || !errors.Is(err, refused) {
			t.Errorf("Do: %v", err)
		}
		err = Do(t.Context(), b, "b", func(_ context.Context, l *Lock) error { lose(l, ReasonForced); return nil })
		if !errors.Is(err, ErrLost) {
			t.Errorf("Do whose lock was lost: %v", err)
		}
	})
}

func TestDoSaysEverythingOnceAndInOneLine(t *testing.T) {
	mine, refused := errors.New("mine"), errors.New("refused")
	lost := func(l *Lock) error { lose(l, ReasonForced); return l.Err() }
	for want, fn := range map[string]func(ctx context.Context, l *Lock) error{
		`mine; refused`: func(context.Context, *Lock) error { return mine },
		`refused`:       func(context.Context, *Lock) error { return nil },
		`lock "a" lost: it was forcibly unlocked`: func(ctx context.Context, l *Lock) error {
			_ = lost(l)
			<-ctx.Done()
			return context.Cause(ctx)
		},
		`half done: lock "a" lost: it was forcibly unlocked`: func(_ context.Context, l *Lock) error { return fmt.Errorf("half done: %w", lost(l)) },
		`lock "b" lost: it was forcibly unlocked; refused`:   func(context.Context, *Lock) error { return &LostError{Name: "b", Reason: ReasonForced} },
		`mine; lock "a" lost: it was forcibly unlocked`:      func(_ context.Context, l *Lock) error { _ = lost(l); return mine },
	} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			b.onRelease = func(context.Context, string) error { return refused }
			err := Do(t.Context(), b, "a", fn)
			if err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			var loss *LostError
			if strings.Contains(want, "lost") != (errors.Is(err, ErrLost) && errors.As(err, &loss) && loss.Reason == ReasonForced) ||
				strings.Contains(want, "mine") != errors.Is(err, mine) || strings.Contains(want, "refused") != errors.Is(err, refused) {
				t.Errorf("errors.Is and As do not say the same as %q", err)
			}
		})
	}
}

func TestDoCallsNothingWithoutTheLock(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		b.grant(t, "taken")
		never := func(context.Context, *Lock) error { t.Error("called"); return nil }
		if err := Do(t.Context(), b, "taken", never); !errors.Is(err, ErrTaken) {
			t.Errorf("Do: %v", err)
		}
		if err := Do(t.Context(), b, "", never); err == nil {
			t.Error("Do of an empty name worked")
		}
		if err := Do(t.Context(), b, "a", never, WithTTL(1)); err == nil || b.held["a"] {
			t.Errorf("Do with a bad option: %v; held %v", err, b.held["a"])
		}
		if b.releases() != 0 {
			t.Errorf("released %v", b.released)
		}
	})
}

func TestTheContextOfDosFunctionEndsWithTheLockAndSaysWhy(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b := newBackend()
		err := Do(t.Context(), b, "a", func(ctx context.Context, l *Lock) error {
			if ctx.Err() != nil {
				t.Errorf("the context has ended before the loss: %v", context.Cause(ctx))
			}
			lose(l, ReasonTakenOver)
			<-ctx.Done()
			if context.Cause(ctx) != l.Err() || !errors.Is(l.Err(), ErrLost) {
				t.Errorf("cause %v, Err %v", context.Cause(ctx), l.Err())
			}
			return nil
		})
		if !errors.Is(err, ErrLost) {
			t.Errorf("Do: %v", err)
		}
	})
}

func TestTheContextOfDosFunctionIsAChildOfItsCallers(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		type key struct{}
		enough := errors.New("enough")
		b := newBackend()
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "trace"))
		var inner context.Context
		err := Do(ctx, b, "a", func(ctx context.Context, l *Lock) error {
			inner = ctx
			if ctx.Value(key{}) != "trace" {
				t.Error("the caller's values are gone")
			}
			cancel(enough)
			<-ctx.Done()
			wantHeld(t, l) // the end of the caller's context is not a loss
			return context.Cause(ctx)
		})
		if !errors.Is(err, enough) || errors.Is(err, ErrLost) {
			t.Errorf("Do: %v", err)
		}
		if b.releases() != 1 {
			t.Errorf("%d releases though the context was over, want 1", b.releases())
		}
		if inner.Err() == nil {
			t.Error("the function's context outlives Do")
		}
	})
}

func TestTheContextOfDosFunctionEndsWhenItReturns(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		var inner context.Context
		b := newBackend()
		b.onRelease = func(context.Context, string) error {
			if inner.Err() == nil {
				t.Error("the context is alive while the lock is released")
			}
			return nil
		}
		_ = Do(t.Context(), b, "a", func(ctx context.Context, _ *Lock) error { inner = ctx; return nil })
		synctest.Wait()
		if !errors.Is(context.Cause(inner), context.Canceled) {
			t.Errorf("cause %v", context.Cause(inner))
		}
	})
}

// claims is a guard that writes down what it was asked.
type claims struct {
	fencing.Memory
	asked []string
	fail  string // this resource's error
}

var errGuard = errors.New("guard is down")

func (g *claims) Check(ctx context.Context, resource string, token fencing.Token) error {
	g.asked = append(g.asked, resource)
	if resource == g.fail {
		return errGuard
	}
	return g.Memory.Check(ctx, resource, token)
}

func TestDoClaimsItsResourcesBeforeItCalls(t *testing.T) {
	for name, c := range map[string]struct{ resources, want []string }{
		"one":     {[]string{"x"}, []string{"x"}},
		"several": {[]string{"x", "y"}, []string{"x", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ *clock) {
				b, g := newBackend(), &claims{}
				b.token = 9
				err := Do(t.Context(), b, "a", func(ctx context.Context, l *Lock) error {
					if !slices.Equal(g.asked, c.want) {
						t.Errorf("claimed %v before the call, want %v", g.asked, c.want)
					}
					for _, r := range c.want {
						if err := g.Memory.Check(ctx, r, 9); !errors.Is(err, fencing.ErrStale) {
							t.Errorf("an earlier holder's write to %q: %v", r, err)
						}
					}
					return nil
				}, WithGuard(g, c.resources...))
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAFailedClaimUnlocksAndCallsNothing(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		b, g := newBackend(), &claims{fail: "y"}
		err := Do(t.Context(), b, "a", func(context.Context, *Lock) error { t.Error("called"); return nil }, WithGuard(g, "x", "y", "z"))
		if !errors.Is(err, errGuard) {
			t.Errorf("Do: %v", err)
		}
		if want := `locker: claim "y" under lock "a": guard is down`; err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if b.releases() != 1 || !slices.Equal(g.asked, []string{"x", "y"}) {
			t.Errorf("%d releases, claimed %v", b.releases(), g.asked)
		}
	})
}

// slowGuard takes an hour, or what the context allows if it heeds that.
type slowGuard struct{ heeds bool }

func (g slowGuard) Check(ctx context.Context, _ string, _ fencing.Token) error {
	if !g.heeds {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-time.After(time.Hour):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g slowGuard) CheckShared(ctx context.Context, resource string, number fencing.SharedToken) error {
	return g.Check(ctx, resource, fencing.Token(number))
}

func TestALockThatIsLostDuringTheClaimEndsItAndNothingIsCalled(t *testing.T) {
	for heeds, want := range map[bool]time.Duration{true: time.Second, false: time.Hour} {
		virtual(t, func(t *testing.T, _ *clock) {
			b, start := newBackend(), time.Now()
			err := Do(t.Context(), b, "a", func(context.Context, *Lock) error { t.Error("called"); return nil },
				WithGuard(slowGuard{heeds}, "r"), WithTTL(time.Second), WithoutRenewal())
			if !errors.Is(err, ErrLost) {
				t.Errorf("Do: %v", err)
			}
			if took := time.Since(start); took > want {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestAClaimEndsWithTheCallersContext(t *testing.T) {
	for name, opts := range map[string][]Option{"of a writer": nil, "of a reader": {WithShared()}} {
		virtual(t, func(t *testing.T, _ *clock) {
			b, start, enough := newBackend(), time.Now(), errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(enough) })
			err := Do(ctx, b, "a", func(context.Context, *Lock) error { t.Error("called"); return nil },
				append(opts, WithGuard(slowGuard{heeds: true}, "r"))...)
			if took := time.Since(start); !errors.Is(err, enough) || took != time.Second || b.held["a"] {
				t.Errorf("%s: Do: %v after %v; held: %v", name, err, took, b.held["a"])
			}
		})
	}
}

func TestNoGuardIsNotAcceptedAsOne(t *testing.T) {
	b := newBackend()
	err := Do(t.Context(), b, "a", func(context.Context, *Lock) error { t.Error("called"); return nil }, WithGuard(nil))
	if err == nil {
		t.Error("no guard was accepted as one")
	}
	if b.held["a"] {
		t.Error("something was locked")
	}
}

// A caller that keeps options in an array with room behind them, and appends others for each
// call, must find these as they were: one that is overwritten is not heeded, and nobody says so.
func TestNothingIsWrittenIntoTheCallersArrayOfOptions(t *testing.T) {
	ctx, names := t.Context(), []string{"a"}
	for what, call := range map[string]func(b *backend, opts ...Option) error{
		"Do": func(b *backend, opts ...Option) error {
			return Do(ctx, b, "a", func(context.Context, *Lock) error { return nil }, opts...)
		},
		"LockAll":    func(b *backend, opts ...Option) error { _, err := LockAll(ctx, b, names, opts...); return err },
		"TryLockAll": func(b *backend, opts ...Option) error { _, err := TryLockAll(ctx, b, names, opts...); return err },
		"Lock with a counter": func(b *backend, opts ...Option) error {
			_, err := WithCounter(b, &counter{}, 0).Lock(ctx, "a", opts...)
			return err
		},
		"TryLock with a counter": func(b *backend, opts ...Option) error {
			_, err := WithCounter(b, &counter{}, 0).TryLock(ctx, "a", opts...)
			return err
		},
		"Lock with an observer": func(b *backend, opts ...Option) error {
			_, err := Observe(b, func(Event) {}).Lock(ctx, "a", opts...)
			return err
		},
		"TryLock with an observer": func(b *backend, opts ...Option) error {
			_, err := Observe(b, func(Event) {}).TryLock(ctx, "a", opts...)
			return err
		},
	} {
		b, opts := newBackend(), make([]Option, 1, 4)
		opts[0] = WithTTL(time.Minute)
		opts[:2][1] = Option{func(*contract.Settings) error { return errors.New("marker") }}
		if err := call(b, opts...); err != nil || b.options != 1 {
			t.Errorf("%s: %v, with %d options", what, err, b.options)
		}
		if opts[:2][1].apply(new(contract.Settings)) == nil {
			t.Errorf("%s wrote into its caller's array", what)
		}
	}
}

func panics(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// writersAlone is a guard that knows no readers.
type writersAlone struct{ fencing.Guard }

func TestAGuardThatDoesNotFitTheLockIsRefusedBeforeItIsAsked(t *testing.T) {
	for name, opts := range map[string][]Option{
		"of writers, for a reader":    {WithShared(), WithGuard(writersAlone{}, "r")},
		"without resources":           {WithGuard(&claims{})},
		"over what several slots use": {WithSlots(2), WithGuard(&claims{}, "r")},
	} {
		b := newBackend()
		err := Do(t.Context(), b, "a", func(context.Context, *Lock) error { t.Errorf("%s: called", name); return nil }, opts...)
		if err == nil || b.token != 0 {
			t.Errorf("%s: %v; %d locks were granted", name, err, b.token)
		}
	}
	writer := func(context.Context, *Lock) error { return nil }
	if err := Do(t.Context(), newBackend(), "a", writer, WithGuard(writersAlone{&claims{}}, "r")); err != nil {
		t.Errorf("of writers, for a writer: %v", err)
	}
}
