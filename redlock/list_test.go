package redlock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/redlock"
)

func TestListShowsWhatAMajorityHolds(t *testing.T) {
	servers := startNodes(t, 5)
	opts := patient
	opts.Prefix = "app:"
	l := newLocker(t, servers, opts)
	for _, name := range []string{"all", "alone", "some", "other"} {
		mustLock(t, l, name, locker.WithoutRenewal())
		for _, s := range servers {
			eventually(t, "granted by all", func() bool { return s.Do("EXISTS", "app:"+name) == "1" || redlock.UnderWay(l) == 0 })
		}
	}
	// A minority has it: the others have forgotten it, or have it for somebody else.
	servers[0].Do("DEL", "app:alone")
	servers[1].Do("DEL", "app:alone")
	servers[2].Do("SET", "app:alone", "theirs")
	list := func() string {
		infos, err := l.List(patience(t), "a")
		if err != nil {
			t.Error(err)
		}
		var names []string
		for _, info := range infos {
			names = append(names, info.Name)
		}
		return strings.Join(names, " ")
	}
	if got := list(); got != "all" {
		t.Errorf("listed: %q", got)
	}
	servers[3].Kill()
	servers[4].Kill()
	if got := list(); got != "all" {
		t.Errorf("with two nodes down: %q", got)
	}
	servers[2].Kill()
	if _, err := l.List(patience(t), "a"); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("with three nodes down: %v", err)
	}
}

// The counter of a name is the key of another, as it were.
func TestBookkeepingIsNoLockToLookAtOrBreak(t *testing.T) {
	servers := startNodes(t, 3)
	l := newLocker(t, servers, patient)
	mustUnlock(t, mustLock(t, l, "a"))
	const counter = "lockstile:t:{a}"
	eventually(t, "the first node to have granted it", func() bool { return servers[0].Do("EXISTS", counter) == "1" })
	if _, err := l.Inspect(patience(t), counter); err == nil || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("Inspect: %v", err)
	}
	if broken, err := l.Break(patience(t), counter); broken || err == nil || servers[0].Do("EXISTS", counter) != "1" {
		t.Errorf("Break: %v, %v, EXISTS %s", broken, err, servers[0].Do("EXISTS", counter))
	}
}
