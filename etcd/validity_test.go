package etcd_test

import (
	"testing"
	"time"

	"github.com/lockstile/locker"
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
