package line

import "time"

const (
	// sureTurns is how many turns in a row goroutines of one Locker get while
	// other processes wait, however long the turns take.
	sureTurns = 16
	// mostTurns is how many they get at most, however short the turns are.
	mostTurns = 128
	// youngTime is how long a streak goes on where turns are so short that more
	// than the sure ones fit in. Other processes hardly feel that wait.
	youngTime = 25 * time.Millisecond
)

// Streak is how often in a row a lock went from one goroutine of a Locker to the
// next. To hand it to another process takes five to ten times as long on Redis or
// PostgreSQL, so that is done seldom where turns are short. But other processes
// wait no longer than for 16 turns or, if more fit in, for 25 ms and the turn
// under way then, and never for more than 128 turns.
//
// Its clock is this process's monotonic one. Only who is next depends on it, not
// whether the lock is safe. The zero Streak is that of a lock which came from the
// store.
type Streak struct {
	turns int
	began time.Time // when the lock was first handed over
}

// Next is the streak of the goroutine that the lock is handed to. The first reads
// the clock.
func (s Streak) Next() Streak {
	if s.turns == 0 {
		s.began = time.Now()
	}
	s.turns++
	return s
}

// Over reports whether other processes go first now, if any wait. The clock is
// read where it decides: not within the first 16 turns, nor after 128.
func (s Streak) Over() bool {
	switch {
	case s.turns < sureTurns:
		return false
	case s.turns >= mostTurns:
		return true
	}
	return time.Since(s.began) >= youngTime
}
