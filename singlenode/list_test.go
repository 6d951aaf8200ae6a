package singlenode_test

import (
	"slices"
	"testing"

	"github.com/lockstile/locker/internal/lab/testserver"
	"github.com/lockstile/locker/singlenode"
)

func TestListNamesLocksWithoutThePrefixOfTheirKeys(t *testing.T) {
	srv := testserver.Redis(t)
	l, other := newLocker(t, srv.Addr(), singlenode.Options{Prefix: "app:"}), newLocker(t, srv.Addr(), singlenode.Options{})
	for _, name := range []string{"b", "a", "c/app:"} {
		mustLock(t, l, name)
	}
	mustLock(t, other, "a")
	for prefix, want := range map[string][]string{"": {"a", "b", "c/app:"}, "a": {"a"}, "app:": nil} {
		infos, err := l.List(patience(t), prefix)
		var names []string
		for _, info := range infos {
			names = append(names, info.Name)
		}
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("below %q: %q, %v, want %q", prefix, names, err, want)
		}
	}
}
