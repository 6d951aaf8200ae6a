package redisnode

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// A process that only has the handle renews the lock. The counter, with the token and the holder's text, is kept with the lease, as if the process had acquired the
// lock: it knows of no time at which that was done last, and a machine that was started just now is no reason not to.
func TestAttemptOfAnotherProcessIsRenewedWithItsCounter(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	other, _ := client(t, srv.Addr())
	other.Keep = 10 * 365 * 24 * time.Hour // the machine has been up for less than a third of it
	first := newAttempt(t, "a")
	token := mustGrant(t, n, first).First
	a := adopted(t, first)
	srv.Do("PEXPIRE", "a", "5000")
	if err := other.Renew(background(t), []*Attempt{a})[0]; err != nil {
		t.Fatal(err)
	}
	if left := counterLeft(t, srv, a); left < other.Keep {
		t.Errorf("its counter has %v", left)
	}
	if v, err := n.Look(background(t), a.Keys); err != nil || v.TimeLeft < 20*time.Second || uint64(v.Token) != token || v.Holder != "the test" {
		t.Errorf("%+v, %v", v, err)
	}
	if err := n.Release(background(t), first, 0); err != nil {
		t.Fatal(err)
	}
	next := newAttempt(t, "a")
	mustGrant(t, n, next)
	srv.Do("PEXPIRE", "a", "5000")
	if err := other.Renew(background(t), []*Attempt{a})[0]; !errors.Is(err, locker.ErrLost) {
		t.Errorf("somebody else has it: %v", err)
	}
	if v, err := n.Look(background(t), a.Keys); err != nil || v.TimeLeft > 5*time.Second {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := n.Break(background(t), a.Keys, Numbered(0)); err != nil {
		t.Fatal(err)
	}
	err := other.Renew(background(t), []*Attempt{adopted(t, next)})[0]
	if lost, ok := errors.AsType[*locker.LostError](err); !ok || lost.Reason != locker.ReasonForced {
		t.Errorf("of a lock that was broken: %v", err)
	}
}

func adopted(t *testing.T, of *Attempt) *Attempt {
	t.Helper()
	a := newAttempt(t, of.Name)
	if err := a.Adopt(of.Value); err != nil {
		t.Fatal(err)
	}
	return a
}

// The interleaving is that of a lock that was handed over, but it was freed by its handle: while it was held, and when it had ended.
func TestRequestThatArrivesAfterItsLockWasFreedByAHandleIsRefused(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	other, _ := client(t, srv.Addr())
	held, over := newAttempt(t, "a"), newAttempt(t, "b")
	mustGrant(t, n, held)
	mustGrant(t, n, over)
	mustRelease(t, other, adopted(t, held))
	srv.Do("DEL", "b")
	if err := other.Release(background(t), adopted(t, over), 0); !errors.Is(err, locker.ErrLost) {
		t.Errorf("of a lock that has ended: %v", err)
	}
	for _, a := range []*Attempt{held, over} {
		if s, err := n.Acquire(background(t), a, Ask{}); !errors.Is(err, ErrWithdrawn) {
			t.Errorf("the late request for %s: %+v, %v", a.Name, s, err)
		}
	}
}

// The answer is lost, and the request is sent again. The lock is gone, and nobody knows whether the first request has freed it.
func TestReleaseByAHandleThatWasSentTwiceIsNeitherASuccessNorALoss(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	hook := new(losing)
	n.rdb.AddHook(hook)
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	for range 2 { // now it is there, and then it is not
		hook.with = []error{io.EOF}
		if err := n.Release(background(t), adopted(t, a), 0); err == nil || errors.Is(err, locker.ErrLost) {
			t.Error(err)
		}
	}
}

func TestAServerWhoseMemoryIsFullFreesALockByItsHandle(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	a, waiter := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, a)
	mustQueue(t, n, m, waiter)
	fill(t, srv, n)
	mustRelease(t, n, adopted(t, a))
	if has := srv.Do("GET", "a"); has == a.Value {
		t.Error("it is held")
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
		if err := newAttempt(t, "a").Adopt(value); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%q is to be renewed: %v", value, err)
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

// The client has sent the first request twice. The second one arrives when the lock was detached, and renewed by its handle for an hour.
func TestLateFirstRequestDoesNotShortenWhatAHandleHasRenewed(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	other, _ := client(t, srv.Addr())
	first := newAttempt(t, "a")
	mustGrant(t, n, first)
	byHandle := adopted(t, first)
	hour := *byHandle.Request
	hour.TTL = time.Hour
	byHandle.Request = &hour
	if err := other.Renew(background(t), []*Attempt{byHandle})[0]; err != nil {
		t.Fatal(err)
	}
	if _, err := n.Acquire(background(t), first, Ask{}); err != nil {
		t.Log(err)
	}
	if v, err := n.Look(background(t), first.Keys); err != nil || v.TimeLeft < 50*time.Minute {
		t.Errorf("a renewal for an hour was confirmed, then a late request arrives, and there are left %v, %v", v.TimeLeft, err)
	}
}

// An answer of an unknown form may be a grant, as after Acquire: a caller who is told that nothing has happened keeps a handle that is good for nothing.
func TestResumeWhoseAnswerNobodyUnderstandsMayHaveHappened(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	first, second := newAttempt(t, "a"), newAttempt(t, "a")
	mustGrant(t, n, first)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	rdb.AddHook(new(garbling))
	_, err := New(rdb, 0).Resume(background(t), second, []string{first.Value}, driver.Now())
	if err == nil || !second.Unsure() {
		t.Errorf("%v, and the attempt is taken to have left nothing; the lock has its value: %v", err, srv.Do("GET", "a") == second.Value)
	}
}

// The lock has ended when it is resumed. Then the first request of its process arrives for the second time.
func TestRequestThatArrivesAfterAResumeInVainMakesNoLock(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	other, _ := client(t, srv.Addr())
	first := newAttempt(t, "a")
	mustGrant(t, n, first)
	srv.Do("DEL", "a")
	if _, err := other.Resume(background(t), newAttempt(t, "a"), []string{first.Value}, driver.Now()); !errors.Is(err, locker.ErrLost) {
		t.Fatal(err)
	}
	if s, err := n.Acquire(background(t), first, Ask{}); err == nil && s.First > 0 {
		t.Errorf("the late request: %+v, and nobody has it", s)
	}
}
