package testbed

import (
	"slices"
	"testing"
)

// What one holder wrote must reach the next through a single node, or the scenarios show
// less than their stories say.
func TestMajoritiesThatFollowEachOtherShareOneNode(t *testing.T) {
	const nodes = 5
	for n := range 6 {
		shared := 0
		for node := range nodes {
			if !slices.Contains(outside(n, nodes), node) && !slices.Contains(outside(n+1, nodes), node) {
				shared++
			}
		}
		if shared != 1 {
			t.Errorf("majorities %d and %d share %d nodes", n, n+1, shared)
		}
	}
	if out := outside(0, nodes); !slices.Equal(out, []int{3, 4}) {
		t.Errorf("the first majority is without %v", out)
	}
}
