package singlenode_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// Other methods put the prefix before a name, as locking does.
func TestListNamesLocksWithoutThePrefixOfTheirKeys(t *testing.T) {
	srv := testserver.Redis(t)
	l, other := newLocker(t, srv.Addr(), singlenode.Options{Prefix: "app:"}), newLocker(t, srv.Addr(), singlenode.Options{})
	for _, name := range []string{"b", "a", "c/app:"} {
		mustLock(t, l, name)
	}
	theirs := mustLock(t, other, "a")
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
	if broken, err := l.Break(patience(t), "a"); err != nil || !broken {
		t.Errorf("broken: %v, %v", broken, err)
	}
	mustUnlock(t, theirs)
	srv.Do("ACL", "SETUSER", "default", "-scan")
	if infos, err := l.List(patience(t), ""); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("of a server that does not say: %+v, %v", infos, err)
	}
	if info, err := l.Inspect(patience(t), "b"); err != nil || !info.Held || info.Name != "b" {
		t.Errorf("%+v, %v", info, err)
	}
}

// The counter of a name is the key of another, as it were.
func TestBookkeepingIsNoLockToLookAtOrBreak(t *testing.T) {
	srv := testserver.Redis(t)
	l := newLocker(t, srv.Addr(), singlenode.Options{})
	mustUnlock(t, mustLock(t, l, "a"))
	const counter = "lockstile:t:{a}"
	if _, err := l.Inspect(patience(t), counter); err == nil || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("Inspect: %v", err)
	}
	if broken, err := l.Break(patience(t), counter); broken || err == nil || srv.Do("EXISTS", counter) != "1" {
		t.Errorf("Break: %v, %v, EXISTS %s", broken, err, srv.Do("EXISTS", counter))
	}
}
