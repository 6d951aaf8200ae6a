package driver_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

// A test's FailNow ends a goroutine so.
func TestObserverThatEndsItsGoroutineHearsOfWhatFollows(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		n := 0
		seen := locker.Observe(l, func(e locker.Event) {
			if n++; n == 2 {
				runtime.Goexit()
			}
			all.observe(e)
		})
		first := mustLock(t, seen)
		mustUnlock(t, first)
		second := mustLock(t, seen)
		mustUnlock(t, second)
		a, b := first.Token(), second.Token()
		if events := all.want(t, fmt.Sprintf("granted %d, granted %d, released %d", a, b, b)); len(events) != 3 || events[1].Missed != 1 {
			t.Errorf("%+v", events)
		}
		began := time.Now()
		if err := l.Close(); err != nil || time.Since(began) != 0 {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
	})
}

func TestCloseWaitsForAnObserverThatTwoLockersShare(t *testing.T) {
	play(t, func(t *testing.T, l *lockertest.Locker) {
		var all told
		seen := locker.WithObserver(func(e locker.Event) { time.Sleep(100 * time.Millisecond); all.observe(e) })
		other := lockertest.New()
		first := mustLock(t, l, seen) // it is being told when the next ones come
		second := mustLock(t, other, seen)
		_ = other.Close()
		all.mu.Lock()
		got := words(all.events)
		all.mu.Unlock()
		if want := fmt.Sprintf("granted %d, granted %d", first.Token(), second.Token()); got != want {
			t.Errorf("told at the end of Close  %s\nwant %s", got, want)
		}
		mustUnlock(t, first)
		mustUnlock(t, second)
	})
}
