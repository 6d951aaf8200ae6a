package otellock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockstile/locker"
)

func TestEventOfASpanHasAllThatIsKnown(t *testing.T) {
	all := locker.Event{
		Type: locker.EventLost, Name: "a", Kind: locker.KindSlots, Token: 1 << 63, Slot: 0, Took: 2 * time.Second, Left: 3 * time.Second,
		Holder: "me", Reason: locker.ReasonMaxHold, Err: fmt.Errorf("x: %w", locker.ErrLost), Missed: 4,
	}
	for _, c := range []struct {
		event locker.Event
		want  []attribute.KeyValue
	}{
		{all, []attribute.KeyValue{
			attribute.String("lockstile.name", "a"), attribute.String("lockstile.kind", "slots"),
			attribute.String("lockstile.token", "9223372036854775808"), attribute.Int("lockstile.slot", 0),
			attribute.Float64("lockstile.took", 2), attribute.Float64("lockstile.left", 3), attribute.String("lockstile.holder", "me"),
			attribute.String("lockstile.reason", "max_hold"), attribute.Int("lockstile.missed", 4),
			attribute.String("error.type", "lost"), attribute.String("error.message", all.Err.Error()),
		}},
		{locker.Event{Type: locker.EventWaiting, Name: "a", Slot: -1}, []attribute.KeyValue{
			attribute.String("lockstile.name", "a"), attribute.String("lockstile.kind", "exclusive"),
		}},
	} {
		got, want := attribute.NewSet(details(c.event)...), attribute.NewSet(c.want...)
		if !got.Equals(&want) {
			t.Errorf("got  %v\nwant %v", got.ToSlice(), want.ToSlice())
		}
	}
}

// Without a provider among the options the metrics go to the global one. What has failed has
// its class, and what was cleaned up has none.
func TestWhatFailsIsCountedByTheGlobalProvider(t *testing.T) {
	defer otel.SetMeterProvider(otel.GetMeterProvider())
	reader := sdk.NewManualReader()
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	observe, err := Metrics(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, there := counted(t, reader)["lockstile.events.missed "]; !there {
		t.Error("before the first event there are no counters")
	}
	observe(locker.Event{Type: locker.EventLost, Call: 5, Slot: -1, Reason: locker.ReasonForced, Err: locker.ErrLost})
	observe(locker.Event{Type: locker.EventReleased, Call: 1, Slot: -1, Err: fmt.Errorf("x: %w", locker.ErrUnavailable)})
	observe(locker.Event{Type: locker.EventReleased, Call: 2, Slot: -1, Err: errors.New("another")})
	observe(locker.Event{Type: locker.EventCleanedUp, Call: 3, Slot: -1, Err: fmt.Errorf("x: %w", locker.ErrOutcomeUnknown)})
	observe(locker.Event{Type: locker.EventCleanedUp, Call: 4, Slot: -1})
	got := counted(t, reader)
	for _, want := range []string{
		"lockstile.lock.failed error.type=unavailable,lockstile.operation=unlock",
		"lockstile.lock.failed error.type=other,lockstile.operation=unlock",
		"lockstile.lock.cleaned_up error.type=outcome_unknown", "lockstile.lock.cleaned_up ",
		"lockstile.lock.lost lockstile.reason=" + locker.ReasonForced.Code(),
	} {
		if got[want] != 1 {
			t.Errorf("%s is counted %d times, of %v", want, got[want], got)
		}
	}
}

// counted returns the sums that a reader has, by their names and attributes.
func counted(t *testing.T, reader *sdk.ManualReader) map[string]int64 {
	t.Helper()
	var read metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &read); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	for _, scope := range read.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
				for _, p := range sum.DataPoints {
					got[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			}
		}
	}
	return got
}
