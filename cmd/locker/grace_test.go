//go:build unix

package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// nobody stands for a child that has ended: signals to its group reach nobody.
func nobody() *child { return &child{pid: 1 << 30} }

// A quarter of the validity is for the command to end by itself, five seconds at most. The rest of
// what it has started is killed just before the lock ends.
func TestCommandHasAQuarterOfTheValidityToEnd(t *testing.T) {
	for _, c := range []struct{ ttl, maxHold, grace time.Duration }{
		{12 * time.Second, 0, 3 * time.Second},
		{10 * time.Minute, 0, 5 * time.Second},
		{time.Minute, 4 * time.Second, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			run := &runCommand{wanted: wanted{ttl: c.ttl}, maxHold: c.maxHold}
			run.more = run.kindAndHold()
			_, h := held(t, append(run.options(), locker.WithoutRenewal())...)
			s := run.supervise(h.set, nobody())
			end := h.set.Deadline()
			before := driver.Now()
			for s.look(); s.lost == nil && time.Now().Before(end); s.look() {
				time.Sleep(10 * time.Millisecond)
				before = driver.Now() // the machine may stall before a look, and after it
			}
			left := time.Until(end)
			if left > c.grace || left < c.grace*9/10 {
				t.Errorf("with %+v the command is asked to end %v before its lock ends", c, left)
			}
			if s.killAt.Sub(driver.Now()) > left*9/10 || s.killAt.Sub(before) < left/2 {
				t.Errorf("with %+v the command is killed %v before its lock ends", c, left-s.killAt.Sub(before))
			}
		})
	}
}

func TestCommandWhoseLockIsGoneIsKilledASecondLater(t *testing.T) {
	t.Parallel()
	store, h := held(t)
	s := (&runCommand{}).supervise(h.set, nobody())
	store.Lose("x")
	<-h.set.Lost()
	before := driver.Now()
	s.goOn() // also one that was stopped is asked to end, before it goes on
	if s.lost == nil {
		t.Fatal("it goes on without its lock")
	}
	after := driver.Now()
	if s.killAt < before.Add(time.Second) || s.killAt > after.Add(time.Second) {
		t.Errorf("it is killed after %v", s.killAt.Sub(before))
	}
	time.Sleep(time.Millisecond) // the next look is later
	if s.look(); s.killAt > after.Add(time.Second) {
		t.Errorf("another look lets it live until %v after it was asked to end", s.killAt.Sub(after))
	}
}

// It was asked to end in good time, and then the store says that the lock is gone.
func TestCommandThatIsEndingIsKilledSoonerOnceItsLockIsGone(t *testing.T) {
	t.Parallel()
	store, h := held(t)
	s := (&runCommand{}).supervise(h.set, nobody())
	first := errors.New("it was about to end")
	s.terminate(first, driver.Now().Add(time.Hour))
	store.Lose("x")
	<-h.set.Lost()
	if s.look(); s.killAt > driver.Now().Add(time.Second) || !errors.Is(s.lost, first) {
		t.Errorf("it is killed in %v, because of %v", s.killAt.Sub(driver.Now()), s.lost)
	}
}
