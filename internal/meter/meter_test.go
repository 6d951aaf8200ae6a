package meter

import (
	"math"
	"slices"
	"testing"
	"time"
)

// What is granted before it counts, or after, only says who had it last.
func TestMeterCountsBetweenStartAndEndOnly(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	m := New(3)
	var unlock Histogram
	m.Granted(0, at(1))
	m.Leaves(at(2))
	m.Note(&unlock, time.Hour)
	m.Granted(1, at(3))
	m.Leaves(at(10))
	m.Count(true)
	m.Granted(0, at(14))
	m.Leaves(at(20))
	m.Note(&unlock, 3*time.Millisecond)
	m.Granted(0, at(24))
	m.Count(false)
	m.Granted(1, at(99))
	if !slices.Equal(m.Served, []int{2, 0, 0}) || m.Locks() != 2 || m.Changes != 1 || m.HandOver.Len() != 2 {
		t.Errorf("%v, %d locks, %d changes, %d handed over", m.Served, m.Locks(), m.Changes, m.HandOver.Len())
	}
	for h, want := range map[*Histogram]time.Duration{&m.HandOver: 4 * time.Millisecond, &unlock: 3 * time.Millisecond} {
		for _, percent := range []int{50, 99} {
			if got := h.Percentile(percent); got.Round(100*time.Microsecond) != want {
				t.Errorf("percentile %d: %v, want %v", percent, got, want)
			}
		}
	}
}

// A lock that is granted for the first time was handed over by nobody.
func TestFirstLockIsNoHandOver(t *testing.T) {
	t.Parallel()
	m := New(2)
	m.Count(true)
	m.Granted(1, time.Now())
	if m.Locks() != 1 || m.Changes != 0 || m.HandOver.Len() != 0 {
		t.Errorf("%d locks, %d changes, %d handed over", m.Locks(), m.Changes, m.HandOver.Len())
	}
}

func TestJainIsOneForEqualSharesAndOneNthForOneWhoGetsAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		served []int
		want   float64
	}{
		{[]int{7, 7, 7, 7}, 1},
		{[]int{12, 0, 0, 0}, 0.25},
		{[]int{1, 1, 0, 0}, 0.5}, // fewer locks than goroutines: at most their share
		{[]int{1, 3}, 0.8},
	} {
		if got := (&Meter{Served: c.served}).Jain(); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("of %v it is %v, want %v", c.served, got, c.want)
		}
	}
	if got := New(2).Jain(); !math.IsNaN(got) {
		t.Errorf("of nothing it is %v", got)
	}
}

func TestPercentilesAreRightToAHundredth(t *testing.T) {
	t.Parallel()
	for _, unit := range []time.Duration{1, 7 * time.Nanosecond, time.Microsecond, 313 * time.Microsecond, time.Second, 9 * time.Hour} {
		var h Histogram
		for i := range 200 {
			h.Add(time.Duration(200-i) * unit)
		}
		for percent, want := range map[int]time.Duration{1: 2, 50: 100, 99: 198, 100: 200} {
			want *= unit
			if got := h.Percentile(percent); math.Abs(float64(got-want)) > float64(want)/100 {
				t.Errorf("percentile %d of 1 to 200 times %v: %v, want %v", percent, unit, got, want)
			}
		}
	}
}

func TestPercentileOfFewIsTheLeastThatSoManyDoNotExceed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, percent, want int }{{0, 99, 0}, {1, 99, 1}, {2, 50, 1}, {3, 50, 2}, {3, 66, 2}, {3, 67, 3}, {10, 99, 10}, {100, 99, 99}} {
		var h Histogram
		for i := range c.n {
			h.Add(time.Duration(i + 1))
		}
		if got := h.Percentile(c.percent); got != time.Duration(c.want) {
			t.Errorf("%d %% of 1 to %d: %d, want %d", c.percent, c.n, got, c.want)
		}
	}
}

func TestHistogramTakesEveryDuration(t *testing.T) {
	t.Parallel()
	var h Histogram
	for _, d := range []time.Duration{math.MinInt64, 0, 255, 256, math.MaxInt64} {
		h.Add(d)
	}
	if got := h.Percentile(100); float64(got) < math.MaxInt64*0.99 {
		t.Errorf("the longest there is: %v", got)
	}
	if got := h.Percentile(40); got != 0 {
		t.Errorf("what is negative counts as %v", got)
	}
}
