package doctor

import (
	"testing"
	"time"
)

// A reading is as wrong as half of the time that it took. What two clocks differ by must be
// more than both readings may be wrong.
func TestClocksAreApartByWhatTheirReadingsCannotExplain(t *testing.T) {
	read := func(ahead, accuracy time.Duration) clockReading { return clockReading{ahead, accuracy} }
	for _, c := range []struct {
		one, other clockReading
		apart      time.Duration
	}{
		{read(time.Second, 0), read(0, 0), time.Second},
		{read(time.Second, 300*time.Millisecond), read(0, 0), 700 * time.Millisecond},
		{read(time.Second, 300*time.Millisecond), read(-time.Second, 200*time.Millisecond), 1500 * time.Millisecond},
		{read(time.Second, 700*time.Millisecond), read(0, 700*time.Millisecond), 0},
	} {
		if one, other := c.one.apart(c.other), c.other.apart(c.one); one != c.apart || other != c.apart {
			t.Errorf("%v and %v are %v apart, or %v; want %v", c.one, c.other, one, other, c.apart)
		}
	}
}
