package redisnode

import (
	"errors"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
)

// The interleaving: the first request of the process that had the lock first is on its way over a slow connection. The lock was handed
// over, and given back. Then the request arrives, and finds the lock free.
func TestRequestThatArrivesAfterItsLockWasHandedOverIsRefused(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	other, _ := client(t, srv.Addr())
	first, second := newAttempt(t, "a"), newAttempt(t, "a")
	token := mustGrant(t, n, first).First
	s, err := other.Resume(background(t), second, []string{first.Value}, driver.Now())
	if err != nil || s.First < token+Tokens || s.Count != Tokens {
		t.Fatalf("%+v, %v", s, err)
	}
	for what, late := range map[string]func() error{
		"a renewal": func() error { return n.Renew(background(t), []*Attempt{first})[0] },
		"a release": func() error { return n.Release(background(t), first, 0) },
		"another resume": func() error {
			_, err := n.Resume(background(t), newAttempt(t, "a"), []string{first.Value}, driver.Now())
			return err
		},
	} {
		if err := late(); !errors.Is(err, locker.ErrLost) {
			t.Errorf("%s that is late: %v", what, err)
		}
	}
	if again, err := other.Resume(background(t), second, []string{first.Value}, driver.Now()); err != nil || again.First != s.First {
		t.Errorf("sent again, it answers %+v, %v, and not %+v", again, err, s)
	}
	if err := other.Release(background(t), second, 0); err != nil {
		t.Fatal(err)
	}
	if s, err := n.Acquire(background(t), first, Ask{}); !errors.Is(err, ErrWithdrawn) {
		t.Errorf("the late request: %+v, %v", s, err)
	}
	if s, err := n.Resume(background(t), first, []string{second.Value}, driver.Now()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("what was given back is resumed: %+v, %v", s, err)
	}
}

// A handle comes from outside. It must not name the values of others, or of the locks' bookkeeping.
func TestValuesThatAreNotOursAreNotResumed(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	for _, value := range []string{"", "a stranger's", "#lockstile", "?" + newAttempt(t, "a").Value, "-" + newAttempt(t, "a").Value, "#" + newAttempt(t, "a").Value[1:]} {
		srv.Do("SET", "a", value)
		if s, err := n.Resume(background(t), newAttempt(t, "a"), []string{value}, driver.Now()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%q is resumed: %+v, %v", value, s, err)
		}
		if got := srv.Do("GET", "a"); got != value {
			t.Errorf("the key has %q, and had %q", got, value)
		}
	}
}

func TestLockThatWasBrokenIsNotResumed(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	if _, err := n.Break(background(t), a.Keys, Numbered(0)); err != nil {
		t.Fatal(err)
	}
	_, err := n.Resume(background(t), newAttempt(t, "a"), []string{a.Value}, driver.Now())
	if lost, ok := errors.AsType[*locker.LostError](err); !ok || lost.Reason != locker.ReasonForced {
		t.Error(err)
	}
}
