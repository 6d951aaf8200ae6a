package otellocker

import (
	"context"
	"errors"
	"strconv"
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
	t := &told{Locker: l, span: span, all: make(chan struct{})}
	t.option = locker.WithObserver(t.observe)
	if err := t.tells(ctx, do); err != nil {
		word := class(err)
		if t.failed {
			word = failure(err)
		}
		span.SetAttributes(attribute.String("error.type", word))
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
	failed bool          // the last call of Lock or TryLock has
	all    chan struct{} // closed by the mark: the events before it are in the span
}

func (t *told) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := t.Locker.Lock(ctx, name, append(opts[:len(opts):len(opts)], t.option)...)
	t.failed = err != nil
	return lock, err
}

func (t *told) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	lock, err := t.Locker.TryLock(ctx, name, append(opts[:len(opts):len(opts)], t.option)...)
	t.failed, t.taken = err != nil, failure(err) == "taken"
	return lock, err
}

// tells calls do, and returns when the events of its calls are in the span.
func (t *told) tells(ctx context.Context, do func(context.Context, locker.Locker) error) error {
	defer t.await()
	return do(ctx, t)
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
	t.span.AddEvent("lockstile."+e.What.String(), trace.WithTimestamp(e.Time), trace.WithAttributes(details(e)...))
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
		word := class(e.Err)
		if e.What == locker.Failed {
			word = failure(e.Err)
		}
		add(true, attribute.String("error.type", word))
		add(true, attribute.String("error.message", e.Err.Error()))
	}
	return all
}
