package otellock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/otellock"
	"github.com/lockstile/locker/lockertest"
)

// play runs a test on a virtual clock, with a Locker whose events are counted.
func play(t *testing.T, opts otellock.Options, f func(t *testing.T, l *lockertest.Locker, seen locker.Locker, m *sdk.ManualReader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		reader, l := sdk.NewManualReader(), lockertest.New()
		defer l.Close()
		opts.MeterProvider = sdk.NewMeterProvider(sdk.WithReader(reader))
		f(t, l, locker.Observe(l, metrics(t, opts)), reader)
	})
}

func metrics(t *testing.T, opts otellock.Options) locker.Observer {
	t.Helper()
	observer, err := otellock.Metrics(opts)
	if err != nil {
		t.Fatal(err)
	}
	return observer
}

// read returns all series that are there, as in: lock.held{kind=exclusive}. A histogram
// has two: its sum, and with the end .count how many there are.
func read(t *testing.T, reader *sdk.ManualReader) map[string]float64 {
	t.Helper()
	var got metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &got); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			name := strings.TrimPrefix(m.Name, "lockstile.")
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					all[name+words(p.Attributes)] = float64(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					all[name+words(p.Attributes)] = p.Sum
					all[name+words(p.Attributes)+".count"] = float64(p.Count)
				}
			default:
				t.Errorf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	return all
}

func words(set attribute.Set) string {
	text := set.Encoded(attribute.DefaultEncoder())
	if text == "" {
		return ""
	}
	return "{" + strings.ReplaceAll(text, "lockstile.", "") + "}"
}

// want waits until all has come to rest, and compares the series that are not zero.
func want(t *testing.T, reader *sdk.ManualReader, series map[string]float64) {
	t.Helper()
	synctest.Wait()
	got := read(t, reader)
	maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
	if !maps.Equal(got, series) {
		t.Errorf("got  %s\nwant %s", sorted(got), sorted(series))
	}
}

func sorted(series map[string]float64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(series)) {
		all = append(all, fmt.Sprintf("%s %v", name, series[name]))
	}
	return strings.Join(all, "\n     ")
}

func mustLock(t *testing.T, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	lock, err := l.TryLock(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func mustUnlock(t *testing.T, lock *locker.Lock) {
	t.Helper()
	if err := lock.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// asks has a goroutine ask for a lock, hold it for a while and give it back.
func asks(t *testing.T, l locker.Locker, name string, hold time.Duration, opts ...locker.Option) {
	t.Helper()
	go func() {
		if err := locker.Do(t.Context(), l, name, func(context.Context, *locker.Lock) error { time.Sleep(hold); return nil }, opts...); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
}
