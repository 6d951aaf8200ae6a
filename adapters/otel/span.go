package otellocker

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstile/locker"
)

// lastEvent is how long a span waits for the last event of a lock. It comes within
// microseconds, but a Locker that is not made with package driver may know no observers.
const lastEvent = time.Second

// Do is [locker.Do] in a span, which has what becomes of the lock as its events. The context
// of fn carries the span, and so do the requests for the lock.
//
// The span ends when fn has returned and the lock was given back or lost. It does not wait
// for a clean-up that goes on in the background.
func Do(ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context, lock *locker.Lock) error, opts ...locker.Option) error {
	return within(ctx, "locker.Do", l, []string{name}, func(ctx context.Context, l locker.Locker) error {
		return locker.Do(ctx, l, name, fn, opts...)
	})
}

// TryDo is [locker.TryDo] in a span, as [Do] is. That somebody else has the lock is an event
// there, and no error of the span.
func TryDo(ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context, lock *locker.Lock) error, opts ...locker.Option) error {
	return within(ctx, "locker.TryDo", l, []string{name}, func(ctx context.Context, l locker.Locker) error {
		return locker.TryDo(ctx, l, name, fn, opts...)
	})
}

// DoAll is [locker.DoAll] in a span, as [Do] is, with the events of all the locks.
func DoAll(ctx context.Context, l locker.Locker, names []string, fn func(ctx context.Context, set *locker.Set) error, opts ...locker.Option) error {
	return within(ctx, "locker.DoAll", l, names, func(ctx context.Context, l locker.Locker) error {
		return locker.DoAll(ctx, l, names, fn, opts...)
	})
}

func within(ctx context.Context, what string, l locker.Locker, names []string, do func(context.Context, locker.Locker) error) error {
	ctx, span := tracer(ctx).Start(ctx, what, trace.WithAttributes(attribute.StringSlice("lockstile.names", names)))
	defer span.End() // also when fn panics, which it records
	if !span.IsRecording() {
		return do(ctx, l)
	}
	t := &told{Locker: l, span: span, ended: make(chan struct{}, 1)}
	t.option = locker.WithObserver(t.observe)
	if err := t.tells(ctx, do); err != nil {
		span.SetAttributes(attribute.String("error.type", class(err)))
		if !t.taken {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		return err
	}
	return nil
}

// tracer is of the provider of the span that ctx has, or of the global one.
func tracer(ctx context.Context) trace.Tracer {
	if parent := trace.SpanFromContext(ctx); parent.SpanContext().IsValid() && !parent.SpanContext().IsRemote() {
		return parent.TracerProvider().Tracer(scope)
	}
	return otel.GetTracerProvider().Tracer(scope)
}

// told is a Locker that tells a span what becomes of its locks.
type told struct {
	locker.Locker
	span   trace.Span
	option locker.Option // one for all calls, so that their events come in one order
	taken  bool          // TryLock has said so

	open  atomic.Int64  // calls whose last event has not come
	ended chan struct{} // gets a value after one has
}

func (t *told) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return t.call(ctx, t.Locker.Lock, name, opts)
}

func (t *told) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := t.call(ctx, t.Locker.TryLock, name, opts)
	t.taken = errors.Is(err, locker.ErrTaken) && !errors.Is(err, locker.ErrOutcomeUnknown)
	return lock, err
}

func (t *told) call(ctx context.Context, acquire func(context.Context, string, ...locker.Option) (*locker.Lock, error), name string, opts []locker.Option) (*locker.Lock, error) {
	t.open.Add(1)
	lock, err := acquire(ctx, name, append(opts[:len(opts):len(opts)], t.option)...)
	if errors.Is(err, errors.ErrUnsupported) {
		t.open.Add(-1) // no event tells of what was refused before it began
	}
	return lock, err
}

// tells calls do, and returns when the last event of each call is in the span.
func (t *told) tells(ctx context.Context, do func(context.Context, locker.Locker) error) error {
	defer t.await()
	return do(ctx, t)
}

// await waits for the last event of each call.
func (t *told) await() {
	late := time.After(lastEvent)
	for t.open.Load() > 0 {
		select {
		case <-t.ended:
		case <-late:
			return
		}
	}
}

func (t *told) observe(e locker.Event) {
	t.span.AddEvent("lockstile."+e.What.String(), trace.WithTimestamp(e.Time), trace.WithAttributes(details(e)...))
	switch e.What {
	case locker.Failed, locker.Lost, locker.Released:
		t.open.Add(-1)
		select {
		case t.ended <- struct{}{}:
		default: // await will look
		}
	}
}

// details are what is known of an event. A token is a text, for it may have more digits than
// a number in JSON keeps.
func details(e locker.Event) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("lockstile.name", e.Name), attribute.String("lockstile.kind", e.Kind.String())}
	add := func(there bool, a attribute.KeyValue) {
		if there {
			all = append(all, a)
		}
	}
	add(e.Token > 0, attribute.String("lockstile.token", strconv.FormatUint(e.Token, 10)))
	add(e.Slot >= 0, attribute.Int("lockstile.slot", e.Slot))
	add(e.Took > 0, attribute.Float64("lockstile.took", e.Took.Seconds()))
	add(e.Left > 0, attribute.Float64("lockstile.left", e.Left.Seconds()))
	add(e.Holder != "", attribute.String("lockstile.holder", e.Holder))
	add(e.What == locker.Lost, attribute.String("lockstile.reason", e.Reason.Code()))
	add(e.Missed > 0, attribute.Int64("lockstile.missed", int64(e.Missed)))
	if e.Err != nil {
		add(true, attribute.String("error.type", class(e.Err)))
		add(true, attribute.String("error.message", e.Err.Error()))
	}
	return all
}
