package otellock_test

import (
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/otellock"
)

// What a turn costs that is passed on in memory: as long as this is below the time that a
// turn takes, no event is missed.
func BenchmarkEventsOfATurn(b *testing.B) {
	observer, err := otellock.Metrics(otellock.Options{Label: before, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for call := uint64(1); b.Loop(); call++ {
		for _, what := range []locker.EventType{locker.EventWaiting, locker.EventPassed, locker.EventReleased} {
			observer(locker.Event{Type: what, Name: "orders/1", Call: call, Slot: -1})
		}
	}
}
