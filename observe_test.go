package locker

import (
	"runtime"
	"testing"
	"time"
)

// An observer that is busy with one event, while others wait, keeps none of those that it has
// heard before, nor their errors.
func TestEventsThatWereHeardAreNotKept(t *testing.T) {
	steps, busy := make(chan struct{}), make(chan struct{})
	heard := 0
	req, err := NewRequest("a", WithObserver(func(Event) {
		if heard++; heard == 3 {
			close(busy)
		}
		<-steps
	}))
	if err != nil {
		t.Fatal(err)
	}
	begin := func() (done func()) { return func() {} }
	freed := make(chan struct{})
	req.Tell(begin, Event{})
	func() {
		err := &LostError{Name: "a"}
		runtime.AddCleanup(err, func(struct{}) { close(freed) }, struct{}{})
		req.Tell(begin, Event{Err: err})
	}()
	for range 3 { // behind it
		req.Tell(begin, Event{})
	}
	steps <- struct{}{}
	steps <- struct{}{} // it has heard of the error
	<-busy
	wantCollected(t, freed, "the error of an event that was heard")
	close(steps)
}

// wantCollected fails the test unless the collector frees something, and then closes freed.
func wantCollected(t *testing.T, freed <-chan struct{}, what string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		runtime.GC()
		select {
		case <-freed:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still in memory", what)
		}
	}
}
