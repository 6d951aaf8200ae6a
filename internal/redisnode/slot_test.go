package redisnode

import (
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// A slot is free when the first of them is given back, or its lease has ended.
func TestWaiterForASlotLooksWhenTheFirstLeaseEnds(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	for _, ttl := range []time.Duration{time.Minute, time.Hour} {
		a := newShare(t, "a", locker.WithSlots(2))
		a.TTL = ttl
		mustGrant(t, n, a)
	}
	s, err := n.Acquire(background(t), newShare(t, "a", locker.WithSlots(2)), Ask{Queue: true})
	if err != nil || s.NextLook() > time.Minute || s.NextLook() < 30*time.Second {
		t.Errorf("it looks after %v, %v", s.NextLook(), err)
	}
}

// Unlike a writer behind readers, who waits for a slot need not look to show that it is there,
// however long that takes.
func TestWaiterForASlotKeepsItsPlaceWithoutLooking(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	slot := func() *Attempt { return newShare(t, "a", locker.WithSlots(1)) }
	holder, waiter := slot(), slot()
	mustGrant(t, n, holder)
	mustQueue(t, n, m, waiter)
	before := due(t, srv, n, waiter)
	mustRefuse(t, n, slot())
	if after := due(t, srv, n, waiter); after != before { // as it does for a writer that waits for readers
		t.Errorf("it must look %d ms sooner, for another one has come", before-after)
	}
}
