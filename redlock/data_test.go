package redlock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstile/locker"
)

// Data stands where the lock's key is, on all nodes: the first word of a user who gives both the
// same name.
func TestDataUnderTheNameOfALockIsNamed(t *testing.T) {
	servers := startNodes(t, 3)
	l := newLocker(t, servers, patient)
	const why = "no lock of ours"
	for _, s := range servers {
		s.Do("SET", "a", "the data")
	}
	if _, err := l.TryLock(t.Context(), "a"); !errors.Is(err, locker.ErrTaken) || !strings.Contains(err.Error(), why) || strings.Count(err.Error(), "taken by another holder") != 1 {
		t.Errorf("TryLock: %v", err)
	}
	info, err := l.Inspect(t.Context(), "a")
	if err != nil || !info.Held || !strings.Contains(info.Holder, "no expiry") {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if broken, err := l.Break(t.Context(), "a"); broken || !errors.Is(err, locker.ErrTaken) || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), why) {
		t.Errorf("Break: %v, %v", broken, err)
	}
	for _, s := range servers {
		if data := s.Do("GET", "a"); data != "the data" {
			t.Errorf("after a Break the data is %q", data)
		}
	}
}

// A minority has data there, and others a lock: Break takes the lock, and leaves the data.
func TestBreakPassesOverTheDataOfAMinority(t *testing.T) {
	servers := startNodes(t, 3)
	l := newLocker(t, servers, patient)
	servers[0].Do("SET", "a", "the data")
	lock := mustLock(t, l, "a")
	if broken, err := l.Break(t.Context(), "a"); !broken || err != nil || servers[0].Do("GET", "a") != "the data" {
		t.Errorf("Break: %v, %v, and the data is %q", broken, err, servers[0].Do("GET", "a"))
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
}
