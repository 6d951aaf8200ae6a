package otellock

import (
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockstile/locker"
)

const scope = "github.com/lockstile/locker/adapters/otellock"

// Options are the settings of Metrics. The zero value is ready to use.
type Options struct {
	// MeterProvider makes the instruments. The default is OpenTelemetry's global one.
	MeterProvider metric.MeterProvider

	// Label returns what stands for the name of a lock in the metrics, as the attribute
	// lockstile.name. Each text that it returns makes about eighty series in Prometheus, which
	// stay until the program ends. So let it return few texts: the part of the name before the
	// first slash, for instance, and not the number of an invoice. By default there is none.
	// If it panics, the event is missed.
	Label func(name string) string
}

// buckets are the upper bounds of the histograms, in seconds: from what a lock takes
// that is passed on in memory to a job that takes a quarter of an hour.
var buckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900,
}

// Metrics returns an observer that measures the locks of a Locker:
//
//	observer, err := otellock.Metrics(otellock.Options{})
//	…
//	observed := locker.Observe(locks, observer)
//
// It serves several Lockers as well. An error says that the provider refused an instrument.
func Metrics(opts Options) (locker.Observer, error) {
	provider := opts.MeterProvider
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	m := &metrics{label: opts.Label, calls: make(map[uint64]call), sets: make(map[series]metric.MeasurementOption)}
	if err := m.create(provider.Meter(scope)); err != nil {
		return nil, fmt.Errorf("otellock: %w", err)
	}
	if m.label == nil {
		m.begin("")
	}
	return m.observe, nil
}

// metrics are the instruments, and what they need to know of calls under way.
type metrics struct {
	label func(name string) string

	waiting, held           metric.Int64UpDownCounter
	wait, hold              metric.Float64Histogram
	failed, lost            metric.Int64Counter
	notRenewed, renewedLate metric.Int64Counter
	cleanedUp, missed       metric.Int64Counter

	mu    sync.Mutex // one observer may serve several Lockers, each of which calls it from a goroutine of its own
	calls map[uint64]call
	sets  map[series]metric.MeasurementOption // what with has made
}

// call is a call that waits, or whose lock is held: the instrument that counts it.
type call struct {
	in  metric.Int64UpDownCounter
	set metric.MeasurementOption
}

// series are the attributes of one measurement. Those that are empty are left out.
type series struct {
	label, kind, how, operation, class, reason string
}

func (m *metrics) create(meter metric.Meter) error {
	var errs []error
	count := func(name, unit, text string) metric.Int64Counter {
		c, err := meter.Int64Counter("lockstile."+name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	level := func(name, text string) metric.Int64UpDownCounter {
		c, err := meter.Int64UpDownCounter("lockstile."+name, metric.WithUnit("{lock}"), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, text string) metric.Float64Histogram {
		h, err := meter.Float64Histogram("lockstile."+name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	m.waiting = level("lock.waiting", "Calls that wait for a lock that is taken.")
	m.held = level("lock.held", "Locks that are held.")
	m.wait = seconds("lock.wait.duration", "How long it took until a lock was granted.")
	m.hold = seconds("lock.hold.duration", "How long locks were held until they were unlocked or lost.")
	m.failed = count("lock.failed", "{call}", "Calls of Lock, TryLock and Unlock that returned an error, other than that of a lost lock.")
	m.lost = count("lock.lost", "{lock}", "Locks that were lost while they were held.")
	m.notRenewed = count("lock.not_renewed", "{renewal}", "Renewals that did not work.")
	m.renewedLate = count("lock.renewed_late", "{renewal}", "Renewals that worked later than planned.")
	m.cleanedUp = count("lock.cleaned_up", "{lock}", "What attempts may have left in the store, and was removed, or not.")
	m.missed = count("events.missed", "{event}", "Events that this observer has missed.")
	return errors.Join(errs...)
}
