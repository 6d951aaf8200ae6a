package locker

import (
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
