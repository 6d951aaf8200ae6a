package main

import (
	"math"
	"testing"
	"time"
)

func TestPercentilesOfABenchAreRightToAHundredth(t *testing.T) {
	t.Parallel()
	for _, unit := range []time.Duration{1, 7 * time.Nanosecond, time.Microsecond, 313 * time.Microsecond, time.Second, 9 * time.Hour} {
		var h histogram
		for i := range 200 {
			h.add(time.Duration(200-i) * unit)
		}
		for percent, want := range map[int]time.Duration{1: 2, 50: 100, 99: 198, 100: 200} {
			want *= unit
			if got := h.percentile(percent); math.Abs(float64(got-want)) > float64(want)/100 {
				t.Errorf("percentile %d of 1 to 200 times %v: %v, want %v", percent, unit, got, want)
			}
		}
	}
}

func TestPercentilesOfABenchBearEveryDuration(t *testing.T) {
	t.Parallel()
	var h histogram
	if got := h.percentile(99); got != 0 {
		t.Errorf("of none: %v", got)
	}
	for _, d := range []time.Duration{math.MinInt64, 0, 255, 256, math.MaxInt64} {
		h.add(d)
	}
	if got := h.percentile(100); float64(got) < math.MaxInt64*0.99 {
		t.Errorf("the longest there is: %v", got)
	}
}

func TestMeterOfABenchCountsBetweenStartAndEndOnly(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	m := newMeter(2)
	m.granted(0, at(0), at(1))
	select {
	case <-m.warm:
		t.Error("warm after one lock for two goroutines")
	default:
	}
	m.leaves(at(2))
	m.unlocked(time.Hour)
	m.granted(1, at(0), at(3))
	<-m.warm
	m.leaves(at(10))
	m.count(true)
	m.granted(0, at(9), at(14)) // 5 ms, 4 after the last one left
	m.leaves(at(20))
	m.unlocked(3 * time.Millisecond)
	m.granted(0, at(20), at(24))
	m.count(false)
	m.granted(1, at(0), at(99))
	f := newFigures(workload{goroutines: 2, clients: 1, oneName: true}, m, 2*time.Second)
	if f.Locks != 2 || f.Rate != 1 || *f.ChangedHands != 1 || f.Jain != 0.5 {
		t.Errorf("%+v with %d changes", f, *f.ChangedHands)
	}
	for what, h := range map[*histogram]time.Duration{&m.handOver: 4 * time.Millisecond, &m.unlock: 3 * time.Millisecond} {
		if got := what.percentile(50); got.Round(100*time.Microsecond) != h || what.percentile(99).Round(100*time.Microsecond) != h {
			t.Errorf("%v, want %v", got, h)
		}
	}
	if got := m.lock.percentile(99).Round(100 * time.Microsecond); got != 5*time.Millisecond || m.lock.n != 2 {
		t.Errorf("%v in %d locks", got, m.lock.n)
	}
}

func TestFairnessOfABenchIsJains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		served []int
		want   float64
	}{
		{[]int{5, 5, 5, 5}, 1}, {[]int{20, 0, 0, 0}, 0.25}, {[]int{1, 3}, 0.8}, {[]int{0, 0}, 0},
	} {
		if got := jain(c.served); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.served, got, c.want)
		}
	}
}
