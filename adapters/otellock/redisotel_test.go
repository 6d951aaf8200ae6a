package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/otellock"
	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// Goal: the hooks of a user's client see the requests for a lock: each is a span below that
// of Do, which the lock has been asked for in, and the client's metrics count it.
func TestHooksOfTheRedisClientSeeTheRequestsForALock(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr(), ContextTimeoutEnabled: true})
	spans, reader := tracetest.NewSpanRecorder(), sdk.NewManualReader()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	err := errors.Join(
		redisotel.InstrumentTracing(rdb, redisotel.WithTracerProvider(provider), redisotel.WithDBStatement(false)),
		redisotel.InstrumentMetrics(rdb, redisotel.WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))),
	)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(locks.Close(), rdb.Close()) }()
	noted := make(chan locker.Event, locker.MaxEvents)
	note := locker.WithObserver(func(e locker.Event) { noted <- e })
	ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
	value := ""
	for range 2 { // the first one teaches the server the scripts
		err := otellock.Do(ctx, locks, "invoices/42", func(ctx context.Context, lock *locker.Lock) (err error) {
			value, err = rdb.Get(ctx, "invoices/42").Result()
			for deadline := time.Now().Add(process.Patience); !renewed(spans) && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
			return err
		}, locker.WithTTL(3*time.Second), note)
		if err != nil {
			t.Fatal(err)
		}
	}
	caller.End()
	do := spans.Ended()[len(spans.Ended())-2]
	if do.Name() != "locker.Do" || do.Parent().SpanID() != caller.SpanContext().SpanID() {
		t.Fatalf("the span before the caller's is %s", do.Name())
	}
	late := time.After(process.Patience)
	for _, e := range do.Events() {
		for found := false; !found; {
			select {
			case happened := <-noted:
				found = happened.Time.Equal(e.Time)
			case <-late:
				t.Fatalf("%s is shown at %v, and nothing happened then", e.Name, e.Time)
			}
		}
	}
	var below []string
	for _, span := range spans.Ended() {
		if span.Parent().SpanID() == do.SpanContext().SpanID() {
			below = append(below, span.Name())
		}
		if said := fmt.Sprint(span.Attributes(), span.Events()); strings.Contains(said, value) || value == "" {
			t.Errorf("the span %s has the value of the lock: %s", span.Name(), said)
		}
	}
	if !renewed(spans) {
		t.Error("no request to renew the lock is a span of its own")
	}
	if got := fmt.Sprint(below); got != "[evalsha get evalsha]" && got != "[evalsha get eval]" {
		t.Errorf("below the span of Do there is %q", below)
	}
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	seen := uint64(0)
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			if use, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "db.client.connections.use_time" {
				for _, p := range use.DataPoints {
					seen += p.Count
				}
			}
		}
	}
	if seen < 4 {
		t.Errorf("the client's metrics have counted %d requests", seen)
	}
}

// renewed reports whether there was a request for a lock that belongs to no call.
func renewed(spans *tracetest.SpanRecorder) bool {
	return slices.ContainsFunc(spans.Ended(), func(span sdktrace.ReadOnlySpan) bool {
		return strings.Contains(span.Name(), "eval") && !span.Parent().IsValid()
	})
}
