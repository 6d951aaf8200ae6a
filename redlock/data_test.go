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
	if broken, err := l.Break(t.Context(), "a"); broken || !errors.Is(err, locker.ErrTaken) || !strings.Contains(err.Error(), why) {
		t.Errorf("Break: %v, %v", broken, err)
	}
	for _, s := range servers {
		if data := s.Do("GET", "a"); data != "the data" {
			t.Errorf("after a Break the data is %q", data)
		}
	}
}
