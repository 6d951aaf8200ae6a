package zookeeper

import (
	"slices"
	"testing"
)

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

// Readers wait for the last writer before them, so that its going wakes those who can go on
// and nobody else; writers wait for whoever is right before them.
func TestReadersWaitForWritersAlone(t *testing.T) {
	first, second := "_c_1-read-lock-0000000001", "_c_0-read-lock-0000000002"
	writer, theirs := "_c_5-lock-0000000003", "lock-0000000005"
	third, fourth, last := "_c_3-read-lock-0000000004", "_c_2-read-lock-0000000006", "_c_4-lock-0000000007"
	children := []string{fourth, first, "leases", last, theirs, third, writer, second}
	for own, want := range map[string]string{
		first: "", second: "", writer: second, third: writer, theirs: third, fourth: theirs, last: fourth,
	} {
		if _, _, ahead := inQueue(children, own); ahead != want {
			t.Errorf("%q waits for %q, want %q", own, ahead, want)
		}
	}
	for _, c := range []struct{ children, holders []string }{
		{children, []string{first, second}},
		{[]string{second, first}, []string{first, second}},
		{[]string{third, writer}, []string{writer}},
		{[]string{"leases"}, nil},
	} {
		if got, _ := holding(c.children); !slices.Equal(got, c.holders) {
			t.Errorf("of %q hold %q, want %q", c.children, got, c.holders)
		}
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
