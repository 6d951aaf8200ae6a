// Package meter measures goroutines that want one lock: how many locks each got,
// how long a hand-over took, and how fair it was.
package meter

import (
	"sync"
	"time"
)

// Meter notes what goroutines do with a lock. It counts between Count(true) and
// Count(false); the fields are read when all goroutines have ended.
type Meter struct {
	Served   []int // locks by goroutine
	Changes  int   // locks whose holder was another goroutine than the last
	HandOver Histogram

	mu     sync.Mutex // the lock that is measured may not exclude
	counts bool
	last   int       // the goroutine that had the last lock
	left   time.Time // when it was about to unlock
}

// New returns a Meter for so many goroutines, which does not count yet.
func New(goroutines int) *Meter { return &Meter{Served: make([]int, goroutines)} }

// Count begins or ends the counting.
func (m *Meter) Count(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts = yes
}

// Granted is called when Lock has returned to a goroutine, at now.
func (m *Meter) Granted(who int, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.last
	m.last = who
	if !m.counts {
		return
	}
	m.Served[who]++
	if !m.left.IsZero() {
		m.HandOver.Add(now.Sub(m.left))
		if who != last {
			m.Changes++
		}
	}
}

// Leaves is called just before Unlock is.
func (m *Meter) Leaves(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = now
}

// Note adds a time to a histogram of the caller's, if m counts.
func (m *Meter) Note(h *Histogram, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts {
		h.Add(took)
	}
}

// Locks is how many locks were counted.
func (m *Meter) Locks() (n int) {
	for _, s := range m.Served {
		n += s
	}
	return n
}

// Jain is Jain's fairness index: 1 if all goroutines got equally many locks, 1/n
// if one got them all (Jain, Chiu and Hawe, 1984). With fewer locks than
// goroutines it is at most their ratio, and without any it is not a number.
func (m *Meter) Jain() float64 {
	var sum, squares float64
	for _, s := range m.Served {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	return sum * sum / (float64(len(m.Served)) * squares)
}
