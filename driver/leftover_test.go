package driver

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstile/locker"
)

// hooked counts what is to be told of its end. A program may have it for as long as it runs.
type hooked struct {
	context.Context
	hooks atomic.Int32
}

func (c *hooked) Value(any) any { return nil } // else package context asks what is within

func (c *hooked) AfterFunc(f func()) (stop func() bool) {
	c.hooks.Add(1)
	unhook := context.AfterFunc(c.Context, f)
	return func() bool {
		c.hooks.Add(-1)
		return unhook()
	}
}

// crowded is a backend that says "taken" before each answer.
type crowded struct{ *backend }

func (c crowded) Acquire(ctx context.Context, h *hold, wait Wait) (Grant, Left, error) {
	return c.backend.Acquire(wait(), h, wait)
}

func TestWaitLeavesNothingInTheContextsThatMayEndIt(t *testing.T) {
	for what, c := range map[string]struct {
		answer error
		opts   []locker.Option
	}{
		"a grant":                   {},
		"a refusal":                 {answer: Refused(errors.New("no"))},
		"a wait that has its bound": {opts: []locker.Option{locker.WithWait(time.Hour)}},
	} {
		virtual(t, func(t *testing.T, _ *clock) {
			b := newBackend()
			l := New("crowded", crowded{b}, Options{Clock: ticking.now})
			callers, closing := &hooked{Context: t.Context()}, &hooked{Context: l.closing}
			b.l, l.closing = l, closing
			b.onAcquire = func(context.Context) error {
				if callers.hooks.Load() == 0 || closing.hooks.Load() == 0 {
					t.Errorf("%s: the wait does not end with its caller and with the Locker", what)
				}
				return c.answer
			}
			_, _ = l.Lock(callers, "a", append(c.opts, locker.WithoutRenewal())...)
			if n, m := callers.hooks.Load(), closing.hooks.Load(); n != 0 || m != 0 {
				t.Errorf("%s: there are %d in the caller's context, and %d in the Locker's", what, n, m)
			}
			pass(locker.DefaultTTL)
		})
	}
}

func TestPatienceThatIsOverLeavesNothing(t *testing.T) {
	callers := &hooked{Context: t.Context()}
	ctx, cancel := Patient(callers, time.Hour, func() Instant { return 0 }, errors.New("silent"))
	if cancel(); ctx.Err() == nil || callers.hooks.Load() != 0 {
		t.Errorf("%v, %d", ctx.Err(), callers.hooks.Load())
	}
}
