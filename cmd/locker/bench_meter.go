package main

import (
	"math/bits"
	"sync"
	"time"
)

// meter notes what the goroutines of a workload do while it counts.
type meter struct {
	mu       sync.Mutex
	grants   int           // counted or not
	warm     chan struct{} // closed after as many grants as there are goroutines
	counts   bool
	served   []int // by goroutine
	last     int   // the goroutine that had the last lock
	left     time.Time
	changes  int
	lock     histogram
	unlock   histogram
	handOver histogram
}

func newMeter(goroutines int) *meter {
	return &meter{warm: make(chan struct{}), served: make([]int, goroutines)}
}

func (m *meter) count(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts = yes
}

// granted is called when a Lock that was called at begin has returned to a
// goroutine, at now.
func (m *meter) granted(who int, begin, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.last
	m.last = who
	if m.grants++; m.grants == len(m.served) {
		close(m.warm)
	}
	if !m.counts {
		return
	}
	m.served[who]++
	m.lock.add(now.Sub(begin))
	if !m.left.IsZero() {
		m.handOver.add(now.Sub(m.left))
		if who != last {
			m.changes++
		}
	}
}

// leaves is called just before Unlock is.
func (m *meter) leaves(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = now
}

// unlocked is called when an Unlock has returned that took so long.
func (m *meter) unlocked(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts {
		m.unlock.add(took)
	}
}

func (m *meter) locks() (n int) {
	for _, s := range m.served {
		n += s
	}
	return n
}

// jain is Jain's fairness index: 1 if everybody got the same, 1/n if one got
// everything (Jain, Chiu and Hawe, 1984). It is 0 if nobody got anything.
func jain(served []int) float64 {
	var sum, squares float64
	for _, s := range served {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if sum == 0 {
		return 0
	}
	return sum * sum / (float64(len(served)) * squares)
}

// histogram counts durations, in a space that does not grow with their number.
// What it returns is right to a hundredth.
type histogram struct {
	n       int
	buckets [256 + 55*128]int
}

// bucket is d itself under 256 ns; above, 128 buckets share each doubling.
func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 256 {
		return int(v)
	}
	shift := bits.Len64(v) - 8 // leaves 128 to 255
	return 256 + (shift-1)*128 + int(v>>shift) - 128
}

// middle is the middle of a bucket.
func middle(bucket int) time.Duration {
	if bucket < 256 {
		return time.Duration(bucket)
	}
	shift, rest := (bucket-256)/128+1, (bucket-256)%128
	return time.Duration((128+rest)<<shift + 1<<shift/2)
}

func (h *histogram) add(d time.Duration) {
	h.n++
	h.buckets[bucket(d)]++
}

// percentile is the least duration that so many percent do not exceed, and 0 of
// none.
func (h *histogram) percentile(percent int) time.Duration {
	rank, sum := (h.n*percent+99)/100, 0
	if rank == 0 {
		return 0
	}
	for b, n := range h.buckets {
		if sum += n; sum >= rank {
			return middle(b)
		}
	}
	return 0
}
