package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/otellock"
	"github.com/lockstile/locker/lockertest"
)

func TestWaitsAndHoldsAreCountedWhileTheyLastAndMeasuredWhenTheyEnd(t *testing.T) {
	play(t, otellock.Options{}, func(t *testing.T, l *lockertest.Locker, seen locker.Locker, m *sdk.ManualReader) {
		other := mustLock(t, l.Another(), "a")
		asks(t, seen, "a", 5*time.Second)
		asks(t, seen, "a", 7*time.Second)
		want(t, m, map[string]float64{"lock.waiting{kind=exclusive}": 2})
		time.Sleep(3 * time.Second)
		mustUnlock(t, other)
		want(t, m, map[string]float64{
			"lock.waiting{kind=exclusive}": 1, "lock.held{kind=exclusive}": 1,
			"lock.wait.duration{how=store,kind=exclusive}": 3, "lock.wait.duration{how=store,kind=exclusive}.count": 1,
		})
		time.Sleep(time.Minute)
		want(t, m, map[string]float64{
			"lock.wait.duration{how=store,kind=exclusive}": 3 + 8, "lock.wait.duration{how=store,kind=exclusive}.count": 2,
			"lock.hold.duration{kind=exclusive}": 5 + 7, "lock.hold.duration{kind=exclusive}.count": 2,
		})
	})
}

func TestTurnsInMemoryReadersAndSlotsAreToldApart(t *testing.T) {
	play(t, otellock.Options{}, func(t *testing.T, _ *lockertest.Locker, seen locker.Locker, m *sdk.ManualReader) {
		for range 2 {
			asks(t, seen, "a", 20*time.Millisecond)
			asks(t, seen, "r", time.Second, locker.WithShared())
			asks(t, seen, "s", time.Second, locker.WithSlots(2))
		}
		want(t, m, map[string]float64{
			"lock.held{kind=exclusive}": 1, "lock.held{kind=shared}": 2, "lock.held{kind=slots}": 2, "lock.waiting{kind=exclusive}": 1,
			"lock.wait.duration{how=store,kind=exclusive}.count": 1, "lock.wait.duration{how=store,kind=slots}.count": 2,
			"lock.wait.duration{how=store,kind=shared}.count": 1, "lock.wait.duration{how=memory,kind=shared}.count": 1,
		})
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if got := read(t, m)["lock.wait.duration{how=memory,kind=exclusive}.count"]; got != 1 {
			t.Errorf("%v turns in memory:\n%s", got, sorted(read(t, m)))
		}
		time.Sleep(time.Second)
	})
}

func TestFailuresAreCountedByClass(t *testing.T) {
	play(t, otellock.Options{}, func(t *testing.T, l *lockertest.Locker, seen locker.Locker, m *sdk.ManualReader) {
		held := mustLock(t, l.Another(), "a")
		slot := mustLock(t, l.Another(), "s", locker.WithSlots(2))
		fails := func(ctx context.Context, name string, class error, opts ...locker.Option) {
			t.Helper()
			if _, err := seen.TryLock(ctx, name, opts...); !errors.Is(err, class) {
				t.Errorf("%v, want %v", err, class)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		fails(t.Context(), "a", locker.ErrTaken)
		if _, err := seen.Lock(t.Context(), "a", locker.WithWait(time.Second)); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("waited in vain: %v", err)
		}
		fails(t.Context(), "s", locker.ErrMismatch, locker.WithSlots(3))
		fails(ended, "b", context.Canceled)
		l.Link().Refuse(errors.New("no"))
		fails(t.Context(), "b", locker.ErrRefused)
		l.Link().Refuse(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.Link().CutReplies()
		time.AfterFunc(time.Second/2, l.Link().Heal)
		fails(ctx, "b", locker.ErrUnavailable)
		l.Link().Cut()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fails(ctx, "b", locker.ErrOutcomeUnknown)
		l.Link().Heal()
		time.Sleep(time.Minute)
		mustUnlock(t, held)
		mustUnlock(t, slot)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		fails(t.Context(), "b", locker.ErrClosed)
		synctest.Wait()
		got := read(t, m)
		for class, times := range map[string]float64{"taken": 2, "mismatch": 1, "other": 1, "refused": 1, "unavailable": 1, "outcome_unknown": 1, "closed": 1} {
			if v := got[fmt.Sprintf("lock.failed{error.type=%s,operation=lock}", class)]; v != times {
				t.Errorf("%s is counted %v times, want %v", class, v, times)
			}
		}
		if got["lock.cleaned_up"] < 1 || got["lock.waiting{kind=exclusive}"] != 0 {
			t.Error("the clean-up is not counted, or one waits")
		}
		if t.Failed() {
			t.Log(sorted(got))
		}
	})
}

func TestLossesAreCountedByReasonAndRenewalsThatFailOrAreLate(t *testing.T) {
	play(t, otellock.Options{}, func(t *testing.T, l *lockertest.Locker, seen locker.Locker, m *sdk.ManualReader) {
		lock := mustLock(t, seen, "a", locker.WithMaxHold(9*time.Second))
		<-lock.Lost()
		want(t, m, map[string]float64{
			"lock.lost{reason=max_hold}": 1, "lock.hold.duration{kind=exclusive}": 9, "lock.hold.duration{kind=exclusive}.count": 1,
			"lock.wait.duration{how=store,kind=exclusive}.count": 1, "lock.cleaned_up": 1,
		})
		lock = mustLock(t, seen, "b")
		l.Link().Refuse(errors.New("no"))
		time.Sleep(20 * time.Second)
		l.Link().Refuse(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := read(t, m); got["lock.not_renewed"] < 1 || got["lock.renewed_late"] != 1 || got["lock.held{kind=exclusive}"] != 1 {
			t.Errorf("after renewals that failed and one that was late:\n%s", sorted(got))
		}
		l.Link().Cut()
		if err := lock.Unlock(t.Context()); err == nil {
			t.Error("the network is cut, and Unlock knows of nothing")
		}
		l.Link().Heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		got, unlock := read(t, m), 0.0
		for name, v := range got {
			if strings.HasPrefix(name, "lock.failed{") && strings.HasSuffix(name, "operation=unlock}") {
				unlock += v
			}
		}
		if unlock != 1 || got["lock.held{kind=exclusive}"] != 0 {
			t.Errorf("after an Unlock that failed:\n%s", sorted(got))
		}
	})
}

// Prometheus sees that a counter has grown only if it has seen a smaller number before.
func TestCountersOfWhatIsRareBeginAtZero(t *testing.T) {
	play(t, otellock.Options{Label: before}, func(t *testing.T, _ *lockertest.Locker, seen locker.Locker, m *sdk.ManualReader) {
		lock := mustLock(t, seen, "a/1")
		synctest.Wait()
		got := read(t, m)
		for _, name := range []string{
			"lock.lost{name=a,reason=expired}", "lock.lost{name=a,reason=max_hold}", "lock.failed{error.type=unavailable,name=a,operation=lock}",
			"lock.not_renewed{name=a}", "lock.renewed_late{name=a}", "lock.cleaned_up{name=a}", "events.missed",
		} {
			if v, there := got[name]; !there || v != 0 {
				t.Errorf("%s is not there from the beginning, in:\n%s", name, sorted(got))
			}
		}
		if _, there := got["lock.not_renewed"]; there {
			t.Errorf("there is a series without a label, in:\n%s", sorted(got))
		}
		mustUnlock(t, lock)
	})
}

// before is a label of the kind that a user would have: what stands before the first slash.
func before(name string) string {
	part, _, _ := strings.Cut(name, "/")
	return part
}

// Goal: what a program has in memory, and sends, does not grow with the names that it locks.
// By default there is no name. With a function there are as many as it returns. If it returns
// every name, the limit of the SDK holds, at 2,000 a metric, and ours.
func TestManyNamesMakeNoMoreSeriesThanTheirLabels(t *testing.T) {
	for _, c := range []struct {
		what  string
		label func(string) string
		most  int
		names int
		mb    int64
	}{
		{"no label", nil, 1, 20_000, 20},
		{"three labels", func(name string) string { return name[len(name)-1:] }, 3, 20_000, 20},
		{"the name itself", func(name string) string { return name }, 2000, 10_000, 50},
	} {
		reader, calls := sdk.NewManualReader(), uint64(0)
		observer := metrics(t, otellock.Options{Label: c.label, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
		lock := func(name string) {
			calls++
			for _, what := range []locker.EventType{locker.EventGranted, locker.EventReleased} {
				observer(locker.Event{Type: what, Name: name, Call: calls, Slot: -1})
			}
		}
		lock("0")
		one, had := len(read(t, reader)), heap()
		for i := range c.names {
			lock(fmt.Sprintf("invoices/%d/%d", i, i%3))
		}
		if grown := heap() - had; grown > c.mb<<20 {
			t.Errorf("%s: %d names have left %d MB in memory", c.what, c.names, grown>>20)
		}
		got, grants := read(t, reader), 0.0
		for name, v := range got {
			if strings.HasPrefix(name, "lock.wait.duration") && strings.HasSuffix(name, ".count") {
				grants += v
			}
		}
		t.Logf("%s: %d series of one name, %d of %d more", c.what, one, len(got), c.names)
		if grants != float64(1+c.names) || len(got) > one*c.most {
			t.Errorf("%s: one name has %d series, %d more have %d; %v grants were counted", c.what, one, c.names, len(got), grants)
		}
		lock("1") // the observer is in use until here
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Prometheus gets no metric at all from an exporter that finds one name which is no UTF-8.
func TestLabelThatIsCutWithinALetterDoesNotSpoilThePage(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	cut := func(name string) string { return name[:1] }
	observer := metrics(t, otellock.Options{Label: cut, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	observer(locker.Event{Type: locker.EventGranted, Name: "ärger", Call: 1, Slot: -1})
	if _, err := registry.Gather(); err != nil {
		t.Errorf("%.200v", err)
	}
}

func TestAfterMissedEventsWhatMayHaveEndedIsNotCountedForEver(t *testing.T) {
	hang := make(chan struct{})
	label := func(name string) string {
		if name == "hang" {
			<-hang
		}
		return ""
	}
	synctest.Test(t, func(t *testing.T) {
		reader, l := sdk.NewManualReader(), lockertest.New()
		defer l.Close()
		hang = make(chan struct{})
		seen := locker.Observe(l, metrics(t, otellock.Options{Label: label, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))}))
		held := mustLock(t, seen, "held")
		mustLock(t, seen, "ends while nobody listens")
		synctest.Wait()
		mustUnlock(t, mustLock(t, seen, "hang"))
		synctest.Wait()
		for range locker.MaxEvents {
			mustUnlock(t, mustLock(t, seen, "a"))
		}
		close(hang)
		synctest.Wait()
		mustUnlock(t, mustLock(t, seen, "a"))
		synctest.Wait()
		got := read(t, reader)
		if got["events.missed"] == 0 || got["lock.held{kind=exclusive}"] != 0 {
			t.Errorf("after missed events:\n%s", sorted(got))
		}
		mustLock(t, seen, "b")
		synctest.Wait()
		mustUnlock(t, held) // an end without a beginning
		synctest.Wait()
		if got := read(t, reader)["lock.held{kind=exclusive}"]; got != 1 {
			t.Errorf("%v locks are held, of which one began after the missed events", got)
		}
	})
}

func TestALockOfWhichTheGrantWasMissedCountsFromItsNextEvent(t *testing.T) {
	for _, what := range []locker.EventType{locker.EventNotRenewed, locker.EventRenewedLate} {
		reader := sdk.NewManualReader()
		observer := metrics(t, otellock.Options{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
		for range 2 {
			observer(locker.Event{Type: what, Name: "a", Call: 7, Slot: -1})
			if got := read(t, reader)["lock.held{kind=exclusive}"]; got != 1 {
				t.Errorf("after %v %v locks are held", what, got)
			}
		}
		observer(locker.Event{Type: locker.EventLost, Name: "a", Call: 7, Slot: -1, Reason: locker.ReasonExpired})
		if got := read(t, reader)["lock.held{kind=exclusive}"]; got != 0 {
			t.Errorf("after its loss %v locks are held", got)
		}
	}
}

func TestOneObserverServesSeveralLockersAtOnce(t *testing.T) {
	reader := sdk.NewManualReader()
	observer := metrics(t, otellock.Options{Label: before, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	var lockers sync.WaitGroup
	for range 4 {
		l := lockertest.New()
		seen := locker.Observe(l, observer)
		lockers.Go(func() {
			for i := range 100 {
				if err := locker.Do(t.Context(), seen, fmt.Sprint(i, "/"), func(context.Context, *locker.Lock) error { return nil }); err != nil {
					t.Error(err)
				}
			}
			if err := l.Close(); err != nil { // waits for the observer
				t.Error(err)
			}
		})
	}
	lockers.Wait()
	for i := range 100 {
		if got := read(t, reader)[fmt.Sprintf("lock.hold.duration{kind=exclusive,name=%d}.count", i)]; got != 4 {
			t.Errorf("%v locks of the name %d", got, i)
		}
	}
}

type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, fmt.Errorf("no %s", name)
}

func (refusingMeter) Int64UpDownCounter(name string, _ ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	return nil, fmt.Errorf("no %s", name)
}

func (refusingMeter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, fmt.Errorf("no %s", name)
}

func TestProviderThatRefusesAnInstrumentIsAnError(t *testing.T) {
	observer, err := otellock.Metrics(otellock.Options{MeterProvider: refusing{}})
	for _, name := range []string{"lock.lost", "lock.held", "lock.hold.duration"} {
		if observer != nil || err == nil || !strings.Contains(err.Error(), "no lockstile."+name) {
			t.Errorf("error %v, want one that names %s", err, name)
		}
	}
}
