package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/otellock"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/lockertest"
)

// traced runs a test on a virtual clock, in a span of a provider whose spans can be read.
func traced(t *testing.T, f func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		spans, l := tracetest.NewSpanRecorder(), lockertest.New()
		defer l.Close()
		ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "caller")
		defer span.End()
		f(t, ctx, l, spans)
	})
}

// last returns the span that has ended last.
func last(t *testing.T, spans *tracetest.SpanRecorder) sdktrace.ReadOnlySpan {
	t.Helper()
	ended := spans.Ended()
	if len(ended) == 0 {
		t.Fatal("no span has ended")
	}
	return ended[len(ended)-1]
}

// tale is what the events of a span say, with the values of some attributes.
func tale(span sdktrace.ReadOnlySpan, keys ...string) string {
	var all []string
	for _, e := range span.Events() {
		text := strings.TrimPrefix(e.Name, "lockstile.")
		for _, a := range e.Attributes {
			if slices.Contains(keys, strings.TrimPrefix(string(a.Key), "lockstile.")) {
				text += " " + a.Value.String()
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestSpanTellsOfALockFromTheCallToTheEnd(t *testing.T) {
	traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
		other := mustLock(t, l.Another(), "a", locker.WithHolder("the other"))
		go func() {
			time.Sleep(3 * time.Second)
			mustUnlock(t, other)
		}()
		began, token := time.Now(), ""
		err := otellock.Do(ctx, l, "a", func(within context.Context, lock *locker.Lock) error {
			token = fmt.Sprint(lock.Token())
			if now := trace.SpanFromContext(within); now.SpanContext().SpanID() == trace.SpanFromContext(ctx).SpanContext().SpanID() || !now.IsRecording() {
				t.Error("the function is not in the span of its lock")
			}
			time.Sleep(2 * time.Second)
			return nil
		})
		span := last(t, spans)
		if err != nil || span.Name() != "locker.Do" || span.Status().Code != codes.Unset || span.Parent().SpanID() != trace.SpanFromContext(ctx).SpanContext().SpanID() {
			t.Errorf("%v; %+v", err, span)
		}
		if !slices.Contains(span.Attributes(), attribute.StringSlice("lockstile.names", []string{"a"})) {
			t.Errorf("the span has the attributes %v", span.Attributes())
		}
		if got, want := tale(span, "name", "holder", "token"), fmt.Sprintf("waiting a the other, granted a %s, released a %s", token, token); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		for i, after := range []time.Duration{0, 3 * time.Second, 5 * time.Second} {
			if got := span.Events()[i].Time.Sub(began); got != after {
				t.Errorf("event %d is of %v, want %v", i, got, after)
			}
		}
		if got := span.EndTime().Sub(began); got != 5*time.Second {
			t.Errorf("the span lasts for %v", got)
		}
	})
}

func TestSpanOfALockThatIsLostSaysWhyAndIsAnError(t *testing.T) {
	traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
		err := otellock.Do(ctx, l, "a", func(ctx context.Context, lock *locker.Lock) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, locker.WithMaxHold(time.Second))
		span := last(t, spans)
		if got := tale(span, "reason"); !errors.Is(err, locker.ErrLost) || !strings.HasPrefix(got, "granted, lost max_hold") {
			t.Errorf("%v; the span tells of %s", err, got)
		}
		if span.Status().Code != codes.Error || !slices.Contains(span.Attributes(), attribute.String("error.type", "lost")) {
			t.Errorf("status %v, attributes %v", span.Status(), span.Attributes())
		}
	})
}

func TestLockThatIsTakenIsNoErrorOfTryDo(t *testing.T) {
	traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
		mustLock(t, l.Another(), "a")
		err := otellock.TryDo(ctx, l, "a", func(context.Context, *locker.Lock) error { t.Error("called"); return nil })
		span := last(t, spans)
		if got := tale(span, "error.type"); !errors.Is(err, locker.ErrTaken) || got != "failed taken" || span.Status().Code != codes.Unset || span.Name() != "locker.TryDo" {
			t.Errorf("%v; %s; %v", err, got, span.Status())
		}
		err = otellock.Do(ctx, l, "a", nil, locker.WithWait(time.Second))
		if span = last(t, spans); !errors.Is(err, locker.ErrTaken) || span.Status().Code != codes.Error {
			t.Errorf("waited in vain: %v; %v", err, span.Status())
		}
		err = otellock.TryDo(ctx, l, "b", func(context.Context, *locker.Lock) error { return locker.ErrTaken })
		if span = last(t, spans); err == nil || span.Status().Code != codes.Error {
			t.Errorf("the function has failed: %v; %v", err, span.Status())
		}
	})
}

func TestErrorAndPanicOfTheFunctionAreInTheSpanWhichEndsAfterUnlock(t *testing.T) {
	traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
		boom := errors.New("boom")
		err := otellock.Do(ctx, l, "a", func(context.Context, *locker.Lock) error { return boom })
		if got := tale(last(t, spans), "exception.message"); !errors.Is(err, boom) || got != "granted, released, exception boom" {
			t.Errorf("%v; %s", err, got)
		}
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("the panic has become %v", p)
				}
			}()
			_ = otellock.Do(ctx, l, "a", func(context.Context, *locker.Lock) error { panic("boom") })
		}()
		if got := tale(last(t, spans), "exception.message"); got != "granted, released, exception boom" {
			t.Errorf("after a panic: %s", got)
		}
		if l.Take("a"); len(spans.Ended()) != 2 {
			t.Errorf("%d spans have ended", len(spans.Ended()))
		}
	})
}

func TestSpanOfSeveralNamesHasTheEventsOfAllAndEndsAfterTheLast(t *testing.T) {
	traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
		err := otellock.DoAll(ctx, l, []string{"b", "a"}, func(context.Context, *locker.Set) error { return nil })
		if got := tale(last(t, spans), "name"); err != nil || !strings.HasPrefix(got, "granted a, granted b, released ") || strings.Count(got, "released") != 2 {
			t.Errorf("%v; %s", err, got)
		}
		mustLock(t, l.Another(), "b")
		err = otellock.DoAll(ctx, l, []string{"c", "b", "a"}, nil, locker.WithWait(time.Second))
		if got := tale(last(t, spans), "name"); err == nil || !strings.Contains(got, "granted a") || !strings.Contains(got, "released a") || !strings.Contains(got, "failed b") {
			t.Errorf("%v; %s", err, got)
		}
	})
}

// deaf is a Locker that knows no observers.
type deaf struct{ *lockertest.Locker }

func (d deaf) Lock(ctx context.Context, name string, _ ...locker.Option) (*locker.Lock, error) {
	return d.Locker.Lock(ctx, name)
}

func (d deaf) TryLock(ctx context.Context, name string, _ ...locker.Option) (*locker.Lock, error) {
	return d.Locker.TryLock(ctx, name)
}

// slow is a provider of spans that need a while for each event.
type slow struct {
	trace.TracerProvider
	takes time.Duration
}

func (s slow) Tracer(name string, opts ...trace.TracerOption) trace.Tracer {
	return slowTracer{s.TracerProvider.Tracer(name, opts...), s}
}

type slowTracer struct {
	trace.Tracer
	slow slow
}

func (t slowTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, span := t.Tracer.Start(ctx, name, opts...)
	span = slowSpan{span, t.slow}
	return trace.ContextWithSpan(ctx, span), span
}

type slowSpan struct {
	trace.Span
	slow slow
}

func (s slowSpan) TracerProvider() trace.TracerProvider { return s.slow }

func (s slowSpan) AddEvent(name string, opts ...trace.EventOption) {
	time.Sleep(s.slow.takes)
	s.Span.AddEvent(name, opts...)
}

// slowly returns ctx with its span as one that is slow, and so are those below it.
func slowly(ctx context.Context, takes time.Duration) context.Context {
	span := trace.SpanFromContext(ctx)
	return trace.ContextWithSpan(ctx, slowSpan{span, slow{span.TracerProvider(), takes}})
}

// All events happen within the time that the span needs for the first one.
func TestSpanHasAllEventsWhenTheCallReturns(t *testing.T) {
	traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
		ctx, began := slowly(ctx, 100*time.Millisecond), time.Now()
		err := otellock.DoAll(ctx, l, []string{"a", "b", "c"}, func(context.Context, *locker.Set) error { return nil })
		got, took := tale(last(t, spans), "name"), time.Since(began)
		if err != nil || !strings.HasPrefix(got, "granted a, granted b, granted c, released ") || strings.Count(got, "released") != 3 || took != 600*time.Millisecond {
			t.Errorf("after %v: %v; %s", took, err, got)
		}
		mustLock(t, l.Another(), "d")
		began = time.Now()
		err = otellock.TryDo(ctx, l, "d", nil)
		got, took = tale(last(t, spans), "name"), time.Since(began)
		if !errors.Is(err, locker.ErrTaken) || got != "failed d" || took != 100*time.Millisecond {
			t.Errorf("after %v: %v; %s", took, err, got)
		}
	})
}

func TestSpanWaitsForItsLastEventButNotForever(t *testing.T) {
	traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
		nothing := func(context.Context, *locker.Lock) error { return nil }
		over, end := context.WithCancel(ctx)
		end()
		for _, c := range []struct {
			what  string
			do    func() error
			takes time.Duration
		}{
			{"as ever", func() error { return otellock.Do(ctx, l, "a", nothing) }, 0},
			{"an option that is refused", func() error { return otellock.Do(ctx, l, "a", nothing, locker.WithTTL(-1)) }, 0},
			{"a name that is refused", func() error { return otellock.Do(ctx, l, "", nothing) }, 0},
			{"an option that TryLock refuses", func() error { return otellock.TryDo(ctx, l, "a", nothing, locker.WithWait(1)) }, 0},
			{"an option that the Locker adds, and that is refused", func() error { return otellock.Do(ctx, locker.Observe(l, nil), "a", nothing) }, 0},
			{"a context that has ended", func() error { return otellock.Do(over, l, "a", nothing) }, 0},
			{"no observers", func() error { return otellock.Do(ctx, deaf{l}, "a", nothing) }, 0},
			{"an event that comes much too late", func() error { return otellock.Do(slowly(ctx, 3*time.Second), l, "a", nothing) }, time.Second},
		} {
			began := time.Now()
			err := c.do()
			if took := time.Since(began); took != c.takes || len(spans.Ended()) == 0 || (err == nil) != (last(t, spans).Status().Code == codes.Unset) {
				t.Errorf("%s: it took %v: %v", c.what, took, err)
			}
		}
		time.Sleep(time.Minute) // what hangs goes on
	})
}

// Another call of a group has failed ("taken", or refused), and its error ended the context of the rest. Goal: that error
// is the cause of the context, and not what the store has said of this lock, neither before it
// was asked nor while it is silent.
func TestTakenInTheCauseOfAContextIsAnErrorOfTryDo(t *testing.T) {
	refused := lockertest.New()
	refused.Link().Refuse(errors.New("no"))
	_, others := refused.TryLock(t.Context(), "a")
	for _, c := range []struct {
		ends  string
		cause error
		class string
	}{
		{"before", locker.ErrTaken, "other"}, {"meanwhile", locker.ErrTaken, "unavailable"},
		{"before", others, "other"}, {"meanwhile", others, "unavailable"},
		{"meanwhile", driver.Refused(locker.ErrUnavailable), "unavailable"}, // as a store puts it
	} {
		t.Run(c.ends, func(t *testing.T) {
			traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
				ctx, cancel := context.WithCancelCause(ctx)
				l.Link().Delay(50 * time.Millisecond)
				if c.ends == "before" {
					cancel(c.cause)
				}
				time.AfterFunc(10*time.Millisecond, func() { cancel(c.cause) })
				err := otellock.TryDo(ctx, l, "a", func(context.Context, *locker.Lock) error { t.Error("called"); return nil })
				span := last(t, spans)
				if got := tale(span, "error.type"); !strings.Contains(got, "failed "+c.class) || span.Status().Code != codes.Error {
					t.Errorf("%v; the events are %q and the status is %v, want failed %s and an error", err, got, span.Status(), c.class)
				}
				if !slices.Contains(span.Attributes(), attribute.String("error.type", c.class)) {
					t.Errorf("%v; the attributes are %v, want error.type %s", err, span.Attributes(), c.class)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// A store says that it refuses in front of ErrUnavailable or behind it.
func TestRefusalIsATypeOfItsOwn(t *testing.T) {
	for _, err := range []error{errors.New("no"), fmt.Errorf("%w: no", locker.ErrUnavailable)} {
		traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
			l.Link().Refuse(err)
			err := otellock.TryDo(ctx, l, "a", func(context.Context, *locker.Lock) error { t.Error("called"); return nil })
			if span := last(t, spans); !slices.Contains(span.Attributes(), attribute.String("error.type", "refused")) {
				t.Errorf("%v; the attributes are %v", err, span.Attributes())
			}
		})
	}
}

// unsure does not know whether it has taken the lock that others have.
type unsure struct{ *lockertest.Locker }

func (unsure) TryLock(context.Context, string, ...locker.Option) (*locker.Lock, error) {
	return nil, fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, locker.ErrTaken)
}

func TestLockThatIsTakenPerhapsByNobodyIsAnErrorOfTryDo(t *testing.T) {
	traced(t, func(t *testing.T, ctx context.Context, l *lockertest.Locker, spans *tracetest.SpanRecorder) {
		err := otellock.TryDo(ctx, unsure{l}, "a", nil)
		span := last(t, spans)
		if err == nil || span.Status().Code != codes.Error || !slices.Contains(span.Attributes(), attribute.String("error.type", "outcome_unknown")) {
			t.Errorf("%v: %v %v", err, span.Status(), span.Attributes())
		}
	})
}

// counting counts the observers of the calls that it passes on.
type counting struct {
	*lockertest.Locker
	observers int
}

func (c *counting) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	s, err := locker.ParseOptions(contract.Key{}, nil, name, opts)
	if err != nil {
		return nil, err
	}
	c.observers += len(s.Observers)
	return c.Locker.Lock(ctx, name, opts...)
}

// Without a caller's span the global provider makes it; nobody observes what is not recorded.
func TestSpanThatIsNotRecordedCostsNoEvents(t *testing.T) {
	l := &counting{Locker: lockertest.New()}
	defer l.Close()
	defer otel.SetTracerProvider(otel.GetTracerProvider())
	nothing := func(context.Context, *locker.Lock) error { return nil }
	observers := func(provider trace.TracerProvider) int {
		otel.SetTracerProvider(provider)
		l.observers = 0
		if err := otellock.Do(t.Context(), l, "a", nothing); err != nil {
			t.Fatal(err)
		}
		return l.observers
	}
	never := observers(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())))
	spans := tracetest.NewSpanRecorder()
	always := observers(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	if never != 0 || always != 1 || len(spans.Ended()) != 1 {
		t.Errorf("%d observers where nothing is recorded, %d where it is, %d spans", never, always, len(spans.Ended()))
	}
	remote := trace.ContextWithRemoteSpanContext(t.Context(), last(t, spans).SpanContext())
	if err := otellock.Do(remote, l, "a", nothing); err != nil || last(t, spans).Parent().SpanID() != spans.Ended()[0].SpanContext().SpanID() {
		t.Errorf("a caller in another process: %v; %d spans", err, len(spans.Ended()))
	}
}
