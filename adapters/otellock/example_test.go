package otellock_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/otellock"
	"github.com/lockstile/locker/lockertest"
)

func Example() {
	reader := metric.NewManualReader() // a program has an exporter here, such as that for Prometheus
	observer, err := otellock.Metrics(otellock.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
		Label:         func(name string) string { kind, _, _ := strings.Cut(name, "/"); return kind },
	})
	if err != nil {
		log.Fatal(err)
	}
	store := lockertest.New() // a program has a backend here
	locks := locker.Observe(store, observer)
	for _, name := range []string{"invoices/42", "invoices/43", "reports/2026"} {
		// locker.Do, in a span: here there is no tracer, and so no span
		if err := otellock.Do(context.Background(), locks, name, func(context.Context, *locker.Lock) error { return nil }); err != nil {
			log.Fatal(err)
		}
	}
	if err := store.Close(); err != nil { // waits for the observer
		log.Fatal(err)
	}
	var found metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &found); err != nil {
		log.Fatal(err)
	}
	for _, m := range found.ScopeMetrics[0].Metrics {
		if held, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "lockstile.lock.hold.duration" {
			for _, p := range held.DataPoints {
				name, _ := p.Attributes.Value("lockstile.name")
				fmt.Println(name.AsString(), p.Count)
			}
		}
	}
	// Unordered output:
	// invoices 2
	// reports 1
}

func ExampleDo() {
	locks := lockertest.New()
	err := otellock.Do(context.Background(), locks, "invoices/42", func(ctx context.Context, lock *locker.Lock) error {
		fmt.Println("held:", lock.Err() == nil) // spans that begin in ctx are below the lock's
		return nil
	})
	fmt.Println(err)
	// Output:
	// held: true
	// <nil>
}
