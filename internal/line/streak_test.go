package line

import (
	"testing"
	"testing/synctest"
	"time"
)

// turnsOf hands a lock over until the streak is over, and returns how many turns
// of that length it has had. It gives up after a thousand.
func turnsOf(t *testing.T, length time.Duration) (turns int) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		var s Streak
		for ; turns < 1000; turns++ {
			time.Sleep(length) // of virtual time
			if s.Over() {
				return
			}
			s = s.Next()
		}
	})
	return turns
}

func TestStreakIsOverAfter16TurnsOr25MsOr128Turns(t *testing.T) {
	for length, want := range map[time.Duration]int{
		time.Hour:               16,
		20 * time.Millisecond:   16,
		1563 * time.Microsecond: 16, // 16 last 25 ms
		1562 * time.Microsecond: 17,
		time.Millisecond:        25,
		500 * time.Microsecond:  50,
		196 * time.Microsecond:  128, // 127.6 last 25 ms
		time.Nanosecond:         128,
		0:                       128,
	} {
		if turns := turnsOf(t, length); turns != want {
			t.Errorf("%d turns in a row of %v each, want %d", turns, length, want)
		}
	}
}

// A streak lasts from the first hand-over: the first holder may have had the lock
// for hours while nobody else wanted it.
func TestStreakIsYoungHoweverLongTheFirstHoldLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Streak
		time.Sleep(time.Hour)
		for range sureTurns {
			s = s.Next()
		}
		if s.Over() {
			t.Error("over at once")
		}
		time.Sleep(youngTime - 1)
		if s.Over() {
			t.Error("over too early")
		}
		time.Sleep(time.Nanosecond)
		if !s.Over() {
			t.Error("not over after 25 ms")
		}
		if s = (Streak{}).Next(); s.Over() {
			t.Error("a new streak is over")
		}
	})
}
