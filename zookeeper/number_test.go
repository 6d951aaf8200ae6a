package zookeeper

import "testing"

func TestPlacesAreSortedByNumberWhicheverLibraryMadeThem(t *testing.T) {
	children := []string{
		"_c_0a1b-lock-0000000007", // ours, Curator's and zk's
		"ffee__lock__0000000005",  // kazoo's
		"lock-0000000006",
		"leases", "lock-", "lock-x", // nobody's
	}
	places, first, ahead := inQueue(children, children[0])
	if places != 3 || first != children[1] || ahead != children[2] {
		t.Errorf("inQueue = %d, %q, %q", places, first, ahead)
	}
	if _, _, ahead := inQueue(children, children[1]); ahead != "" {
		t.Errorf("ahead of the first is %q", ahead)
	}
}

func TestNumbersThatTheServerGivesTwiceAreNone(t *testing.T) {
	for node, want := range map[string]bool{
		"_c_0-lock-0000000000": true, "_c_0-lock-2147483646": true,
		"_c_0-lock-2147483647": false, "_c_0-lock--2147483648": false, "lock-": false,
	} {
		if numbered(node) != want {
			t.Errorf("numbered(%q) = %v", node, !want)
		}
	}
}
