package otellock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/otellock"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/lockertest"
)

// recorded is a context with a span that is recorded.
func recorded(t *testing.T) context.Context {
	ctx, span := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "test")
	t.Cleanup(func() { span.End() })
	return ctx
}

// Goal: what a Locker has by default is the same in a span as without one.
func TestDefaultsOfTheLockerHoldInASpan(t *testing.T) {
	ctx, guard := recorded(t), new(fencing.Memory)
	nothing := func(context.Context, *locker.Lock) error { return nil }
	slots, hour := locker.With(lockertest.New(), locker.WithSlots(2)), locker.With(lockertest.New(), locker.WithTTL(time.Hour))
	if err := otellock.Do(ctx, slots, "n", nothing, locker.WithGuard(guard)); err != nil {
		t.Errorf("a guard of slots: %v", err)
	}
	if err := otellock.Do(ctx, slots, "n", nothing, locker.WithGuard(guard, "accounts")); err == nil {
		t.Error("the function was called, and what it names was not claimed")
	}
	if err := otellock.Do(ctx, hour, "n", nothing, locker.WithMinValidity(40*time.Second)); err != nil {
		t.Errorf("an option that goes with the default TTL: %v", err)
	}
}

func TestDefaultBoundsOfASetCountFromItsLastLockInASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockertest.New()
		b, err := locks.Another().Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(8*time.Second, func() { _ = b.Unlock(context.Background()) })
		l := locker.With(locks, locker.WithMaxHold(10*time.Second))
		_ = otellock.DoAll(recorded(t), l, []string{"a", "b"}, func(ctx context.Context, _ *locker.Set) error {
			began := time.Now()
			<-ctx.Done()
			if held := time.Since(began); held < 9*time.Second {
				t.Errorf("held for %v after the last lock", held)
			}
			return nil
		})
	})
}
