package etcd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
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
}

// One that wants more than is left of the session gets it.
func TestSessionIsRenewedForALockThatWantsMoreValidity(t *testing.T) {
	t.Parallel()
	const ttl = 1000 * time.Second
	l := newLocker(t, testserver.Etcd(t, 1).Endpoints()...)
	begun := time.Now()
	early := mustLock(t, l, "early", locker.WithTTL(ttl))
	until(t, "five seconds have passed", func() bool { return time.Since(begun) > 5*time.Second })
	mustLock(t, l, "late", locker.WithTTL(ttl), locker.WithMinValidity(ttl-locker.Drift(ttl)-4*time.Second))
	if more := early.Deadline().Sub(begun.Add(ttl - locker.Drift(ttl))); more < 4*time.Second {
		t.Errorf("the session ends only %v later", more)
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
