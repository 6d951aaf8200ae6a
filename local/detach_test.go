package local

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/lockertest"
)

// Whoever wants a lock to go on in another process has to learn what can do that on one machine.
func TestLockThatEndsWithItsProcessCannotBeDetached(t *testing.T) {
	t.Parallel()
	l := newLocker(t, t.TempDir())
	held := mustLock(t, l, "a")
	if _, err := held.Detach(patience(t)); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "file:DIR") || held.Err() != nil {
		t.Errorf("detached: %v, and the lock: %v", err, held.Err())
	}
	if err := held.Unlock(patience(t)); err != nil {
		t.Error(err)
	}
	h, err := mustLock(t, lockertest.New(), "a").Detach(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Resume(patience(t), l, h); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("resumed: %v", err)
	}
	if err := locker.RenewHandle(patience(t), l, h); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("renewed: %v", err)
	}
	if err := locker.UnlockHandle(patience(t), l, h); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("unlocked: %v", err)
	}
}
