package driver

import (
	"math"
	"testing"
	"time"
)

func TestTheClockRunsAndIsNeverZero(t *testing.T) {
	for name, read := range map[string]func() time.Duration{"bootTime": bootTime, "monotonicTime": monotonicTime} {
		first := read()
		if first <= 0 {
			t.Errorf("%s reads %v", name, first)
		}
		const d = 20 * time.Millisecond
		time.Sleep(d)
		if got := read() - first; got < d {
			t.Errorf("%s counted %v in at least %v", name, got, d)
		}
	}
	if Now() == 0 {
		t.Error("Now is the zero Instant, which stands for never")
	}
}

// A machine that has just booted reads close to zero, in a container too.
func TestThePortableClockIsFarFromZeroFromTheStart(t *testing.T) {
	if got := time.Since(began); got < time.Hour {
		t.Errorf("it began at %v", got)
	}
}

func TestInstantsAddAndSubtract(t *testing.T) {
	i := Instant(5 * time.Second)
	if got := i.Add(2 * time.Second); got != Instant(7*time.Second) {
		t.Errorf("Add: %v", got)
	}
	if got := i.Sub(Instant(7 * time.Second)); got != -2*time.Second {
		t.Errorf("Sub: %v", got)
	}
	if got := i.Add(-time.Second).Sub(i); got != -time.Second {
		t.Errorf("Add and Sub: %v", got)
	}
}

// A sum that wrapped would be an end that has long passed.
func TestInstantsSaturateAndNeverWrap(t *testing.T) {
	const most, least = Instant(math.MaxInt64), Instant(math.MinInt64)
	const longest, shortest = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	now := Instant(5 * time.Second)
	for _, sum := range []struct {
		i    Instant
		d    time.Duration
		want Instant
	}{
		{now, longest, most}, {now, longest - time.Duration(now), most}, {now, longest - time.Duration(now) - 1, most - 1},
		{most, 1, most}, {most, longest, most}, {most, -1, most - 1}, {now, shortest, Instant(shortest) + now},
		{-now, shortest, least}, {least, -1, least}, {0, longest, most}, {0, shortest, least},
	} {
		if got := sum.i.Add(sum.d); got != sum.want {
			t.Errorf("%d.Add(%d) is %d, want %d", sum.i, sum.d, got, sum.want)
		}
	}
	for _, diff := range []struct {
		i, j Instant
		want time.Duration
	}{
		{most, now, longest - time.Duration(now)}, {most, -now, longest}, {most, least, longest}, {now, least, longest},
		{least, now, shortest}, {least, most, shortest}, {least, least, 0}, {most, most, 0}, {0, least, longest}, {-1, most, shortest},
	} {
		if got := diff.i.Sub(diff.j); got != diff.want {
			t.Errorf("%d.Sub(%d) is %d, want %d", diff.i, diff.j, got, diff.want)
		}
	}
}
