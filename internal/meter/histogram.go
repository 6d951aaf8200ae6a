package meter

import (
	"math/bits"
	"time"
)

// Histogram counts durations, in a space that does not grow with their number.
// What it returns is right to a hundredth. The zero Histogram is empty.
type Histogram struct {
	n       int
	buckets [256 + 55*128]int
}

// Add counts a duration. A negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	h.n++
	h.buckets[bucket(d)]++
}

// Len is how many durations were counted.
func (h *Histogram) Len() int { return h.n }

// Percentile is the least duration that so many percent do not exceed, and 0 if
// there is none.
func (h *Histogram) Percentile(percent int) time.Duration {
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
