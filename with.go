package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstile/locker/internal/contract"
)

// With returns a Locker that locks with l and has other defaults: a TTL, a holder's text, an
// observer. The options of a call come after these. An option that is refused is the error of
// each call. [WithGuard] is refused, for a guard's resources belong to a call. TryLock, which
// does not wait, ignores a WithWait among the defaults. A call can have another TTL, another bound
// or another holder's text; it cannot take back WithoutRenewal, a bound or a kind.
//
// Put With outside of wrappers of your own. What counts for a whole [Set], and what a guard is
// given, [Do] and [LockAll] look for in the outermost Locker.
//
// What l is besides ([Inspector], [Breaker], [Lister]) the new Locker is as well, or else these
// calls return [errors.ErrUnsupported].
func With(l Locker, opts ...Option) Locker {
	w := &with{optional: optional{l}}
	if inner, ok := l.(*with); ok {
		w.Locker, w.defaults, w.err = inner.Locker, inner.defaults, inner.err
	}
	if w.err == nil {
		w.defaults, w.err = apply(w.defaults, opts)
	}
	w.defaults.Observers = slices.Clip(w.defaults.Observers) // calls that add one must not write into it
	if w.err == nil && w.defaults.Guard != nil {
		w.err = errors.New("WithGuard is no default, and works with Do alone: give it to Do, with the names of the resources")
	}
	return w
}

type with struct {
	optional
	defaults contract.Settings
	err      error // of the options
}

func (w *with) Lock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	l, s, err := settle(w, name, opts, false)
	if err != nil {
		return nil, err
	}
	return l.Lock(ctx, name, given(s))
}

func (w *with) TryLock(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	l, s, err := settle(w, name, opts, true)
	if err != nil {
		return nil, err
	}
	return l.TryLock(ctx, name, given(s))
}

// settle returns what a call of l's with these options asks for, defaults of [With] included,
// and the Locker to hand that on to.
func settle(l Locker, name string, opts []Option, tries bool) (_ Locker, s contract.Settings, err error) {
	if err := CheckName(name); err != nil {
		return l, s, err
	}
	if w, ok := l.(*with); ok {
		l, s, err = w.Locker, w.defaults, w.err
		if tries {
			s.Wait = 0
		}
	}
	if err == nil && len(opts) > 0 {
		s, err = apply(s, opts)
	}
	if err == nil {
		err = agree(&s, name)
	}
	return l, s, named(name, err)
}

// named is an error about the options of a call, or nil.
func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("locker: lock %q: %w", name, err)
}

// optional keeps what a Locker that is wrapped can do besides.
type optional struct{ Locker }

func (o optional) Inspect(ctx context.Context, name string) (Info, error) {
	if i, ok := o.Locker.(Inspector); ok {
		return i.Inspect(ctx, name)
	}
	return Info{}, o.unsupported("Inspector")
}

func (o optional) Break(ctx context.Context, name string) (bool, error) {
	if b, ok := o.Locker.(Breaker); ok {
		return b.Break(ctx, name)
	}
	return false, o.unsupported("Breaker")
}

func (o optional) BreakHolder(ctx context.Context, name string, number Number) (bool, error) {
	if b, ok := o.Locker.(Breaker); ok {
		return b.BreakHolder(ctx, name, number)
	}
	return false, o.unsupported("Breaker")
}

func (o optional) List(ctx context.Context, prefix string) ([]Info, error) {
	if i, ok := o.Locker.(Lister); ok {
		return i.List(ctx, prefix)
	}
	return nil, o.unsupported("Lister")
}

func (o optional) unsupported(what string) error {
	return fmt.Errorf("locker: %w: %s is no %s", errors.ErrUnsupported, kind(o.Locker), what)
}
