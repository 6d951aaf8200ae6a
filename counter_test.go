package locker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
)

// counter is a fencing.Counter that does something on the way.
type counter struct {
	fencing.Memory
	during func() error
}

func (c *counter) Next(ctx context.Context, name string) (fencing.Token, error) {
	if c.during != nil {
		if err := c.during(); err != nil {
			return 0, err
		}
	}
	return c.Memory.Next(ctx, name)
}

// both runs f with Lock and with TryLock.
func both(t *testing.T, f func(t *testing.T, lock func(Locker) (*Lock, error))) {
	t.Run("Lock", func(t *testing.T) {
		virtual(t, func(t *testing.T, _ *clock) {
			f(t, func(l Locker) (*Lock, error) { return l.Lock(t.Context(), "a", WithTTL(time.Minute)) })
		})
	})
	t.Run("TryLock", func(t *testing.T) {
		virtual(t, func(t *testing.T, _ *clock) {
			f(t, func(l Locker) (*Lock, error) { return l.TryLock(t.Context(), "a", WithTTL(time.Minute)) })
		})
	})
}

func TestACountedLockHasTheCountersToken(t *testing.T) {
	both(t, func(t *testing.T, lock func(Locker) (*Lock, error)) {
		b := newBackend()
		b.token = 1000
		counted := WithCounter(b, &counter{}, 0)
		for want := fencing.Token(1); want <= 3; want++ {
			l, err := lock(counted)
			if err != nil {
				t.Fatal(err)
			}
			if l.Token() != want {
				t.Errorf("token %d, want %d", l.Token(), want)
			}
			if !l.held.(withToken).Held.(*hold).req.Alone {
				t.Error("its lease may be passed on to others, who would have the same token")
			}
			if got := time.Until(l.Deadline()); got != time.Minute-contract.Drift(time.Minute) {
				t.Errorf("the option was lost: the deadline is %v away", got)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestATakenLockDrawsNoToken(t *testing.T) {
	both(t, func(t *testing.T, lock func(Locker) (*Lock, error)) {
		b := newBackend()
		b.grant(t, "a")
		counted := WithCounter(b, &counter{during: func() error { t.Error("drawn"); return nil }}, 0)
		if l, err := lock(counted); !errors.Is(err, ErrTaken) || l != nil {
			t.Errorf("%v, %v", l, err)
		}
	})
}

// What a caller may do next depends on whether the name is free.
func TestAFailedDrawSaysWhatIsLeftInTheStore(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		release error
		want    error
	}{
		"given back":    {nil, ErrUnavailable},
		"not there":     {&LostError{Reason: ReasonTakenOver}, ErrUnavailable},
		"not confirmed": {refused, ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, lock func(Locker) (*Lock, error)) {
				b := newBackend()
				down := errors.New("down")
				b.onRelease = func(context.Context, string) error { return c.release }
				l, err := lock(WithCounter(b, &counter{during: func() error { return down }}, 0))
				if l != nil || !errors.Is(err, down) {
					t.Errorf("%v, %v; want the counter's error", l, err)
				}
				for _, other := range []error{ErrTaken, ErrUnavailable, ErrOutcomeUnknown} {
					if errors.Is(err, other) != (other == c.want) {
						t.Errorf("%v: want that it is %q alone", err, c.want)
					}
				}
				if unknown := c.want == ErrOutcomeUnknown; errors.Is(err, refused) != unknown || b.held["a"] {
					t.Errorf("%v; held: %v", err, b.held["a"])
				}
				if strings.ContainsAny(err.Error(), "\n%") {
					t.Errorf("not one line of words: %q", err)
				}
			})
		})
	}
}

func TestADrawThatTheContextEndsIsUnavailableAndNamesTheCause(t *testing.T) {
	virtual(t, func(t *testing.T, _ *clock) {
		for want, ended := range map[string]func(context.Context) error{
			"no token was drawn: enough: context canceled": context.Context.Err,
			"no token was drawn: enough":                   context.Cause,
		} {
			b := newBackend()
			ctx, cancel := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			l, err := WithCounter(b, &counter{during: func() error { cancel(enough); return ended(ctx) }}, 0).Lock(ctx, "a")
			if l != nil || !errors.Is(err, ErrUnavailable) || !errors.Is(err, enough) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, %v, want %q at its end", l, err, want)
			}
			if strings.Contains(want, "canceled") != errors.Is(err, context.Canceled) || b.held["a"] {
				t.Errorf("%v; held: %v", err, b.held["a"])
			}
		}
	})
}

// zeros is a counter that was never set up.
type zeros struct{}

func (zeros) Next(context.Context, string) (fencing.Token, error) { return 0, nil }

func TestTheZeroTokenOfACounterIsRefused(t *testing.T) {
	both(t, func(t *testing.T, lock func(Locker) (*Lock, error)) {
		b := newBackend()
		l, err := lock(WithCounter(b, zeros{}, 0))
		if l != nil || !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "zero token") {
			t.Errorf("%v, %v", l, err)
		}
		if b.held["a"] {
			t.Error("it is held")
		}
	})
}

// Nobody has seen the lock, so nobody else can give it back.
func TestADrawThatPanicsUnlocks(t *testing.T) {
	both(t, func(t *testing.T, lock func(Locker) (*Lock, error)) {
		b := newBackend()
		counted := WithCounter(b, &counter{during: func() error { panic("a hook of the counter's") }}, 0)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was not passed on")
				}
			}()
			_, _ = lock(counted)
		}()
		if b.releases() != 1 {
			t.Errorf("%d releases", b.releases())
		}
	})
}

func TestALockLostDuringTheDrawIsNotReturned(t *testing.T) {
	for name, wait := range map[string]func(*clock){
		"told by the timer":  func(*clock) { time.Sleep(time.Minute) },
		"no timer has fired": func(c *clock) { c.jump(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, c *clock) {
				b := newBackend()
				counted := WithCounter(b, &counter{during: func() error { wait(c); return nil }}, 0)
				l, err := counted.Lock(t.Context(), "a", WithoutRenewal())
				if l != nil || !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrLost) {
					t.Errorf("%v, %v", l, err)
				}
				if b.held["a"] {
					t.Error("the store has it")
				}
			})
		})
	}
}

func TestTheGuaranteesOfACountedLock(t *testing.T) {
	b := newBackend()
	for _, assumes := range []Assumptions{0, ForwardClock, DurableServer | DurableReplica} {
		want := b.Guarantees()
		want.Tokens = SteadyClocks | assumes
		if got := WithCounter(b, &counter{}, assumes).Guarantees(); got != want {
			t.Errorf("a counter that assumes %v: %+v, want %+v", assumes, got, want)
		}
	}
}
