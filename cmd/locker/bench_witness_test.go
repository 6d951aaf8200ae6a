package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

func yes() error { return nil }

func TestWitnessOfABenchIsContentWithOneAtATimeInOrder(t *testing.T) {
	t.Parallel()
	w := witness{name: "x"}
	for _, token := range []fencing.Token{1, 2, 7} {
		if err := w.granted(token, yes); err != nil {
			t.Fatal(err)
		}
		w.released(token)
	}
	if w.seen != 3 {
		t.Errorf("it has seen %d", w.seen)
	}
}

func TestWitnessOfABenchReportsTwoHoldersAtOnce(t *testing.T) {
	t.Parallel()
	w := witness{name: "x"}
	if err := w.granted(1, yes); err != nil {
		t.Fatal(err)
	}
	err := w.granted(2, yes)
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), `"x" had two holders at once, with the tokens 1 and 2`) {
		t.Errorf("an overlap: %v", err)
	}
}

func TestWitnessOfABenchReportsTokensThatDoNotIncrease(t *testing.T) {
	t.Parallel()
	for _, second := range []fencing.Token{5, 4} {
		w := witness{name: "x"}
		if err := w.granted(5, yes); err != nil {
			t.Fatal(err)
		}
		w.released(5)
		if err := w.granted(second, yes); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "increase") {
			t.Errorf("%d after 5: %v", second, err)
		}
	}
}

// A holder that knows that its lease has ended may be followed by another one, and
// a lock that is lost when its Lock returns was never held.
func TestWitnessOfABenchTakesALossForNoOverlap(t *testing.T) {
	t.Parallel()
	w := witness{name: "x"}
	var lost error
	if err := w.granted(1, func() error { return lost }); err != nil {
		t.Fatal(err)
	}
	lost = locker.ErrLost
	if err := w.granted(3, yes); err != nil {
		t.Error(err)
	}
	if err := w.granted(2, func() error { return lost }); err != nil {
		t.Error(err)
	}
	w.released(1) // late, and of no effect on the holder
	if err := w.granted(4, yes); !errors.Is(err, errBroken) {
		t.Errorf("the holder of 3 is still there: %v", err)
	}
}
