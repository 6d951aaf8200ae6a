package otellock

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

// patience is how long a span waits until the events of its locks are in it. That takes
// microseconds, unless so many events wait that the last are dropped.
const patience = time.Second

// Do is [locker.Do] in a span, which has what becomes of the lock as its events. The context
// of fn carries the span, and so do the requests for the lock.
//
// The span ends when fn has returned and the lock was given back or lost. It does not wait
// for a clean-up that goes on in the background.
func Do(ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context, lock *locker.Lock) error, opts ...locker.Option) error {
	t := &told{}
	return t.within(ctx, "locker.Do", l, []string{name}, func(ctx context.Context, l locker.Locker) error {
		return locker.Do(ctx, l, name, calling(t, fn), opts...)
	})
}

// TryDo is [locker.TryDo] in a span, as [Do] is. That somebody else has the lock is an event
// there, and no error of the span.
func TryDo(ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context, lock *locker.Lock) error, opts ...locker.Option) error {
	t := &told{tries: true}
	return t.within(ctx, "locker.TryDo", l, []string{name}, func(ctx context.Context, l locker.Locker) error {
		return locker.TryDo(ctx, l, name, calling(t, fn), opts...)
	})
}

// DoAll is [locker.DoAll] in a span, as [Do] is, with the events of all the locks.
func DoAll(ctx context.Context, l locker.Locker, names []string, fn func(ctx context.Context, set *locker.Set) error, opts ...locker.Option) error {
	t := &told{}
	return t.within(ctx, "locker.DoAll", l, names, func(ctx context.Context, l locker.Locker) error {
		return locker.DoAll(ctx, l, names, calling(t, fn), opts...)
	})
}

// told tells a span what becomes of the locks of a call.
type told struct {
	tries  bool // the call does not wait
	called bool // its function was
	span   trace.Span
	option locker.Option // one for all locks, so that their events come in one order
	all    chan struct{} // closed by the mark: the events before it are in the span
}

// calling is fn, and notes that it was called.
func calling[L any](t *told, fn func(context.Context, L) error) func(context.Context, L) error {
	return func(ctx context.Context, lock L) error {
		t.called = true
		return fn(ctx, lock)
	}
}

func (t *told) within(ctx context.Context, what string, l locker.Locker, names []string, do func(context.Context, locker.Locker) error) error {
	ctx, t.span = tracer(ctx).Start(ctx, what, trace.WithAttributes(attribute.StringSlice("lockstile.names", names)))
	defer t.span.End() // also when fn panics, which it records
	if !t.span.IsRecording() {
		return do(ctx, l)
	}
	t.all, t.option = make(chan struct{}), locker.WithObserver(t.observe)
	err := t.tells(ctx, locker.With(l, t.option), do)
	if err == nil {
		return nil
	}
	word := class(err)
	if !t.called { // so it is an error of Lock or TryLock
		word = failure(err)
	}
	t.span.SetAttributes(attribute.String("error.type", word))
	if !t.tries || t.called || word != "taken" {
		t.span.RecordError(err)
		t.span.SetStatus(codes.Error, err.Error())
	}
	return err
}

// tracer is of the provider of the span that ctx has, or of the global one.
func tracer(ctx context.Context) trace.Tracer {
	if parent := trace.SpanFromContext(ctx); parent.SpanContext().IsValid() && !parent.SpanContext().IsRemote() {
		return parent.TracerProvider().Tracer(scope)
	}
	return otel.GetTracerProvider().Tracer(scope)
}

// tells calls do, and returns when the events of its calls are in the span.
func (t *told) tells(ctx context.Context, l locker.Locker, do func(context.Context, locker.Locker) error) error {
	defer t.await()
	return do(ctx, l)
}

// errMark is the cause of the last call's failure.
var errMark = errors.New("all events have come")

// await makes one more call with the same observer, and waits for its event. The events of the
// earlier calls come before it: they were in the queue of the observer when these calls returned.
// The call is made on a Locker in memory, because the user's may know no observers, or refuse the
// call. Its context has ended, so it fails at once, and leaves nothing that must be closed.
func (t *told) await() {
	ended, end := context.WithCancelCause(context.Background())
	end(errMark)
	_, _ = lockertest.New().TryLock(ended, "mark", t.option)
	select {
	case <-t.all:
	case <-time.After(patience):
	}
}

func (t *told) observe(e locker.Event) {
	if errors.Is(e.Err, errMark) {
		close(t.all)
		return
	}
	t.span.AddEvent("lockstile."+e.Type.String(), trace.WithTimestamp(e.Time), trace.WithAttributes(details(e)...))
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
	add(e.Token > 0, attribute.String("lockstile.token", e.Token.String()))
	add(e.SharedToken > 0, attribute.String("lockstile.token", e.SharedToken.String()))
	add(e.Slot >= 0, attribute.Int("lockstile.slot", e.Slot))
	add(e.Took > 0, attribute.Float64("lockstile.took", e.Took.Seconds()))
	add(e.Left > 0, attribute.Float64("lockstile.left", e.Left.Seconds()))
	add(e.Holder != "", attribute.String("lockstile.holder", e.Holder))
	add(e.Type == locker.EventLost, attribute.String("lockstile.reason", e.Reason.Code()))
	add(e.Missed > 0, attribute.Int64("lockstile.missed", int64(e.Missed)))
	if e.Err != nil {
		word := class(e.Err)
		if e.Type == locker.EventFailed {
			word = failure(e.Err)
		}
		add(true, attribute.String("error.type", word))
		add(true, attribute.String("error.message", e.Err.Error()))
	}
	return all
}
