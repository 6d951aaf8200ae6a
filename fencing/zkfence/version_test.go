package zkfence

import (
	"errors"
	"math"
	"testing"

	"github.com/lockstile/locker/fencing"
)

// Goal: no transaction is sent with a version that the servers do not compare. They
// take -1 for any, and a node's version gets there by wrapping.
func TestVersionThatStandsForAnyIsNotCompared(t *testing.T) {
	for _, version := range []int32{0, math.MaxInt32, math.MinInt32, -2, -1} {
		for _, token := range []fencing.Token{34, 35} { // the one that was seen, and a greater one
			op, err := condition("/base/r", []byte("34"), version, fencing.StaleError{Resource: "r", Token: token})
			if (version == -1) != (err != nil) || errors.Is(err, fencing.ErrStale) {
				t.Errorf("version %d, token %d: %+v, %v", version, token, op, err)
			}
		}
		if _, err := condition("/base/r", []byte("34"), version, fencing.StaleError{Resource: "r", Token: 33}); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("version %d: a stale token: %v", version, err)
		}
	}
}
