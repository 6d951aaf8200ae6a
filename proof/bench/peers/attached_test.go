package peers

import (
	"context"
	"errors"
	"testing"

	"github.com/lockstile/locker"
)

func TestALockIsLostWhenItsSessionIsSaidToBeOver(t *testing.T) {
	var over error
	released := 0
	a := newAttached("n", 7, func() error { return over }, func(context.Context) error { released++; return nil })
	if err := a.Err(); err != nil {
		t.Fatalf("while the session lives: %v", err)
	}
	over = errSessionDone
	if err := a.Err(); !errors.Is(err, locker.ErrLost) || !errors.Is(err, errSessionDone) {
		t.Errorf("after its end: %v", err)
	}
	select {
	case <-a.Lost():
	default:
		t.Error("its holder was not told")
	}
	over = nil // the connection is back: a loss is for good
	if err := a.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) || released != 1 {
		t.Errorf("an unlock after the loss: %v, and the library was asked %d times", err, released)
	}
}

func TestAnUnlockIsNoLoss(t *testing.T) {
	a := newAttached("n", 7, func() error { return nil }, func(context.Context) error { return nil })
	if err := a.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.Lost():
		t.Error("its holder was told of a loss")
	default:
	}
	if a.Err() == nil {
		t.Error("it is held after its unlock")
	}
}
