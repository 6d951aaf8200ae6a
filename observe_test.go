package locker

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker/internal/contract"
)

// told tells an observer of events with numbers, and notes of how many it has begun to tell, and
// has told.
type told struct {
	contract.Observer
	begun, over atomic.Int32
}

func newTold(t *testing.T, o Observer) *told {
	t.Helper()
	s, err := ParseOptions(contract.Key{}, nil, "a", []Option{WithObserver(o)})
	if err != nil || len(s.Observers) != 1 {
		t.Fatal(s.Observers, err)
	}
	return &told{Observer: s.Observers[0]}
}

func (x *told) tell(numbers ...int) {
	for _, n := range numbers {
		x.Tell(func() (done func()) { x.begun.Add(1); return func() { x.over.Add(1) } }, Event{Slot: n})
	}
}

// Method: it is busy with the first event until all others wait or are missed. The last of those
// that wait and the one behind the missed ones end it.
func TestAnObserverHearsEventsInOrderAndHowManyItHasMissed(t *testing.T) {
	for what, end := range map[string]func(){"it panics": func() { panic("a defect") }, "it ends its goroutine": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			var heard []Event
			free, busy := make(chan struct{}), atomic.Bool{}
			x := newTold(t, func(e Event) {
				if !busy.CompareAndSwap(false, true) {
					t.Errorf("%s: it is called with %d while it is busy", what, e.Slot)
				}
				defer busy.Store(false)
				if <-free; e.Slot == MaxEvents || e.Slot == MaxEvents+4 {
					end()
				}
				heard = append(heard, e)
			})
			x.tell(0)
			synctest.Wait()
			for n := range MaxEvents + 3 {
				x.tell(n + 1)
			}
			close(free)
			synctest.Wait()
			free = make(chan struct{})
			x.tell(MaxEvents+4, MaxEvents+5, MaxEvents+6)
			synctest.Wait()
			x.tell(MaxEvents + 7)
			close(free)
			synctest.Wait()
			missed := map[int]uint64{MaxEvents + 5: 1 + 3 + 1}
			for i, e := range heard {
				if i >= MaxEvents {
					i += 5
				}
				if e.Slot != i || e.Missed != missed[i] {
					t.Fatalf("%s: told of %+v, want number %d, %d missed", what, e, i, missed[i])
				}
			}
			if n := x.over.Load(); len(heard) != MaxEvents+3 || n != MaxEvents+5 || x.begun.Load() != n {
				t.Errorf("%s: it heard of %d; of %d events the telling began, of %d it is over", what, len(heard), x.begun.Load(), n)
			}
		})
	}
}

// Dashboards and alerts keep them: these words never change.
func TestWhatHasHappenedInWords(t *testing.T) {
	for w, want := range map[EventType]string{
		0: "unknown", EventWaiting: "waiting", EventGranted: "granted", EventPassed: "passed", EventFailed: "failed", EventNotRenewed: "not_renewed",
		EventRenewedLate: "renewed_late", EventLost: "lost", EventReleased: "released", EventCleanedUp: "cleaned_up", EventDetached: "detached", EventDetached + 1: "unknown", 255: "unknown",
	} {
		if got := w.String(); got != want {
			t.Errorf("EventType %d reads %q, want %q", uint8(w), got, want)
		}
	}
}

// An observer that is busy with one event, while others wait, keeps none of those that it has
// heard before, nor their errors.
func TestEventsThatWereHeardAreNotKept(t *testing.T) {
	steps, busy := make(chan struct{}), make(chan struct{})
	heard := 0
	x := newTold(t, func(Event) {
		if heard++; heard == 3 {
			close(busy)
		}
		<-steps
	})
	begin := func() (done func()) { return func() {} }
	freed := make(chan struct{})
	x.Tell(begin, Event{})
	func() {
		err := &LostError{Name: "a"}
		runtime.AddCleanup(err, func(struct{}) { close(freed) }, struct{}{})
		x.Tell(begin, Event{Err: err})
	}()
	for range 3 { // behind it
		x.Tell(begin, Event{})
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
