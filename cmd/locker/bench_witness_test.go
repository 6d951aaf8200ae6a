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
	var w witness
	for _, token := range []fencing.Token{1, 2, 7} {
		if err := w.granted("x", token, yes); err != nil {
			t.Fatal(err)
		}
		w.released(token)
	}
	if w.seen != 3 {
		t.Errorf("it has seen %d", w.seen)
	}
}

func TestWitnessOfABenchTellsOfTwoHoldersAtOnce(t *testing.T) {
	t.Parallel()
	var w witness
	if err := w.granted("x", 1, yes); err != nil {
		t.Fatal(err)
	}
	err := w.granted("x", 2, yes)
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), `"x" had two holders at once, with the tokens 1 and 2`) {
		t.Errorf("an overlap: %v", err)
	}
}

func TestWitnessOfABenchTellsOfTokensThatDoNotIncrease(t *testing.T) {
	t.Parallel()
	for _, second := range []fencing.Token{5, 4} {
		var w witness
		if err := w.granted("x", 5, yes); err != nil {
			t.Fatal(err)
		}
		w.released(5)
		if err := w.granted("x", second, yes); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "increase") {
			t.Errorf("%d after 5: %v", second, err)
		}
	}
}

// A holder whose lease has ended, and knows it, is followed by another one, and
// one that was told of its lock too late to believe in it has never been one.
func TestWitnessOfABenchTakesALossForNoOverlap(t *testing.T) {
	t.Parallel()
	var w witness
	var lost error
	if err := w.granted("x", 1, func() error { return lost }); err != nil {
		t.Fatal(err)
	}
	lost = locker.ErrLost
	if err := w.granted("x", 3, yes); err != nil {
		t.Error(err)
	}
	if err := w.granted("x", 2, func() error { return lost }); err != nil {
		t.Error(err)
	}
	w.released(1) // late, and of no effect on the holder
	if err := w.granted("x", 4, yes); !errors.Is(err, errBroken) {
		t.Errorf("the holder of 3 is still there: %v", err)
	}
}
