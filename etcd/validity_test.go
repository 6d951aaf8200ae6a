package etcd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
)

// The lease of a lock does not begin with the lock but with the last renewal of
// the session that it joins.
func TestValidityCountsFromTheSessionsLastRenewal(t *testing.T) {
	t.Parallel()
	l := newLocker(t, testserver.Etcd(t, 1).Endpoints()...)
	begun := time.Now()
	early := mustLock(t, l, "early", locker.WithTTL(time.Hour)) // its renewal is far away
	until(t, "a second has passed", func() bool { return time.Since(begun) > time.Second })
	late := mustLock(t, l, "late", locker.WithTTL(time.Hour))
	if more := late.Deadline().Sub(early.Deadline()).Abs(); more > time.Second/2 {
		t.Errorf("a lock that is younger than its session is believed in for %v longer", more)
	}
	bounded := mustLock(t, l, "bounded", locker.WithTTL(time.Hour), locker.WithMaxHold(time.Second))
	if err := bounded.Err(); err != nil {
		t.Errorf("a lock with a maximum hold of a second, on a session older than that: %v", err)
	}
	whole := mustLock(t, l, "whole", locker.WithTTL(time.Hour), locker.WithoutRenewal())
	if more := whole.Deadline().Sub(early.Deadline()); more < time.Second/2 {
		t.Errorf("a lock without renewal ends only %v after one that is a second older", more)
	}
}

// The next goroutine in line has the same key as one whose lock is over. If it
// comes before the clean-up, it must not take the old key for its own.
func TestTokensIncreaseWhereACleanUpIsUnderWay(t *testing.T) {
	t.Parallel()
	l := newLocker(t, testserver.Etcd(t, 1).Endpoints()...)
	var last fencing.Token
	for range 100 {
		lock := mustLock(t, l, "x", locker.WithMaxHold(5*time.Millisecond))
		if lock.Token() <= last {
			t.Fatalf("token %d after %d", lock.Token(), last)
		}
		last = lock.Token()
		<-lock.Lost()
	}
}

// An heir that wants a whole TTL gets one, on a session of any age.
func TestHeirWithoutRenewalGetsAWholeTTL(t *testing.T) {
	l := newLocker(t, testserver.Etcd(t, 1).Endpoints()...)
	begun := time.Now()
	early := mustLock(t, l, "early", locker.WithTTL(time.Hour))
	held := mustLock(t, l, "x", locker.WithTTL(time.Hour))
	got := lockLater(t, l, "x", locker.WithTTL(time.Hour), locker.WithoutRenewal())
	until(t, "it waits and a second has passed", func() bool { return inLine() >= 1 && time.Since(begun) > time.Second })
	mustUnlock(t, held)
	heir := received(t, got)
	if more := heir.Deadline().Sub(early.Deadline()); more < time.Second/2 {
		t.Errorf("the heir's lock ends only %v after one that is a second older", more)
	}
	mustUnlock(t, heir)
}

// A renewal whose reply is slow began a TTL when it was sent, or later.
func TestRenewedSessionCountsFromBeforeItWasAskedFor(t *testing.T) {
	t.Parallel()
	proxy := conformance.NewProxy(t, testserver.Etcd(t, 1).Members[0].Addr())
	l := newLocker(t, proxy.Addr())
	mustUnlock(t, mustLock(t, l, "x", locker.WithTTL(time.Hour)))
	proxy.CutReplies()
	before := time.Now()
	time.AfterFunc(600*time.Millisecond, proxy.Deliver) // this is how slow the replies are
	lock := mustLock(t, l, "x", locker.WithTTL(time.Hour), locker.WithoutRenewal())
	end := before.Add(time.Hour - locker.Drift(time.Hour))
	if late := lock.Deadline().Sub(end); time.Since(before) < time.Second && late > 300*time.Millisecond {
		t.Errorf("believed in for %v longer than a TTL from when it was asked for", late)
	}
}

// Whichever lock's renewal hears that the session is gone, all locks on it are
// lost at once.
func TestRenewalThatFindsTheSessionGoneEndsAllItsLocks(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Etcd(t, 1).Endpoints()...)
	l := newLockerOn(t, client, etcd.Options{})
	one, other := mustLock(t, l, "x", locker.WithTTL(time.Hour)), mustLock(t, l, "y", locker.WithTTL(time.Hour))
	if _, err := client.Revoke(patience(t), leaseOf(t, client, "x/")); err != nil {
		t.Fatal(err)
	}
	if err := one.Renew(patience(t)); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Renew: %v", err)
	}
	lostFor(t, other, locker.SessionEnded)
}
