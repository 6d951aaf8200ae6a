package redlock

import (
	"context"
	"testing"
)

// A majority of nodes decides: where it is known to have nothing left, nothing is left, also
// when the time is over. Where it is not, the caller must hear that something may be.
func TestNothingIsLeftWhereAMajorityHasNothingLeft(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s := &store{quorum: 2}
	for _, test := range []struct {
		ctx     context.Context
		clean   int // nodes that have nothing left, as is known already
		results []bool
		want    bool
	}{
		{t.Context(), 0, []bool{true, true, false}, true},
		{t.Context(), 0, []bool{true, false, false}, false},
		{t.Context(), 0, []bool{false, false, false}, false},
		{over, 2, nil, true},
		{over, 1, nil, false},
	} {
		a := &attempt{parts: make([]part, 3), cleanUp: &cleanUp{results: make(chan bool, 3), clean: test.clean, ended: test.clean}}
		for _, r := range test.results {
			a.cleanUp.results <- r
		}
		if err := s.Withdraw(test.ctx, a); (err == nil) != test.want {
			t.Errorf("%d clean, then %v: %v", test.clean, test.results, err)
		}
	}
}
