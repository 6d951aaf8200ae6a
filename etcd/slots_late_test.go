package etcd

import (
	"context"
	"errors"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// unheard sends an attempt's request, whose answer is lost.
func unheard(t *testing.T, ctx context.Context, l *Locker, a *attempt, once bool) {
	t.Helper()
	copied := *a
	if _, err := l.store.ask(ctx, &copied, once); err != nil {
		t.Fatal(err)
	}
	a.unsure = true
}

// Nobody has heard which slot it is.
//
//	a takes a slot beside b's, unheard; a is withdrawn
func TestSlotWhoseGrantWasNotHeardIsGivenBack(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	for _, n := range []int{2, locker.MaxSlots} {
		l, ctx := process(t, srv), aMinute(t)
		a, b := begin(t, ctx, l, "x", locker.WithSlots(n)), begin(t, ctx, l, "x", locker.WithSlots(n))
		takes(t, ctx, l, b, "")
		unheard(t, ctx, l, a, true)
		if got := len(below(t, ctx, l, "x/")); got != 2 {
			t.Fatalf("%d keys, want one of each", got)
		}
		if err := l.store.Withdraw(ctx, a); err != nil || a.left() {
			t.Fatal(err)
		}
		wantKeys(t, ctx, l, b.key)
		gives(t, ctx, l, b)
	}
}

// Two requests of one attempt may find different slots free, so the first is made void.
//
//	b has slot 0; a takes slot 1, unheard; b unlocks; a asks again; its first request comes late
func TestAttemptThatAsksTwiceHasOneSlot(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a, b := begin(t, ctx, l, "x", locker.WithSlots(3)), begin(t, ctx, l, "x", locker.WithSlots(3))
	takes(t, ctx, l, b, "")
	late := *a
	unheard(t, ctx, l, a, false)
	gives(t, ctx, l, b)
	takes(t, ctx, l, a, "")
	wantKeys(t, ctx, l, a.key)
	if ahead, err := l.store.ask(ctx, &late, false); err == nil {
		t.Errorf("a late request is answered with %q", ahead)
	}
	wantKeys(t, ctx, l, a.key)
	if a.slot != 0 {
		t.Errorf("slot %d was granted", a.slot)
	}
}

// A waiter whose grant was not heard finds its slot when it asks again, though another one
// is free by then. Only the first of its requests is granted, whenever the others arrive.
func TestWaiterThatAsksTwiceHasTheSlotOfTheFirstRequest(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a, b, c := begin(t, ctx, l, "x", locker.WithSlots(2)), begin(t, ctx, l, "x", locker.WithSlots(2)), begin(t, ctx, l, "x", locker.WithSlots(2))
	takes(t, ctx, l, a, "")
	takes(t, ctx, l, b, "")
	takes(t, ctx, l, c, c.pool())
	late := *c
	gives(t, ctx, l, b)
	unheard(t, ctx, l, c, false)
	gives(t, ctx, l, a)
	takes(t, ctx, l, c, "")
	if c.slot != 1 {
		t.Errorf("slot %d was granted, after slot 1", c.slot)
	}
	if c.unsure {
		t.Error("that its other requests are void is not known")
	}
	wantKeys(t, ctx, l, c.key)
	gives(t, ctx, l, c)
	if ahead, err := l.store.ask(ctx, &late, false); err == nil {
		t.Errorf("a late request is answered with %q", ahead)
	}
	wantKeys(t, ctx, l)
}

// A clean-up deletes the place in the queue and whatever came of it.
//
//	c waits; c takes a slot, unheard; c is withdrawn
func TestWaiterWhoseGrantWasNotHeardLeavesNothing(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	for _, granted := range []bool{false, true} {
		a, c := begin(t, ctx, l, "x", locker.WithSlots(1)), begin(t, ctx, l, "x", locker.WithSlots(1))
		takes(t, ctx, l, a, "")
		takes(t, ctx, l, c, c.pool())
		if granted {
			gives(t, ctx, l, a)
		}
		unheard(t, ctx, l, c, false)
		if err := l.store.Withdraw(ctx, c); err != nil || c.left() {
			t.Fatal(err)
		}
		if !granted {
			gives(t, ctx, l, a)
		}
		wantKeys(t, ctx, l)
	}
}

// A waiter whose place was deleted is not granted a slot, and asks again at the end of the
// queue.
func TestWaiterForASlotWhosePlaceWasDeletedTakesAnother(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a, b := begin(t, ctx, l, "x", locker.WithSlots(1)), begin(t, ctx, l, "x", locker.WithSlots(1))
	takes(t, ctx, l, a, "")
	takes(t, ctx, l, b, b.pool())
	if _, err := l.store.client.Delete(ctx, b.key); err != nil {
		t.Fatal(err)
	}
	if ahead, err := l.store.look(ctx, b, ""); !errors.Is(err, errDeleted) {
		t.Fatalf("behind %q, %v", ahead, err)
	}
	wantKeys(t, ctx, l, a.key)
	takes(t, ctx, l, b, b.pool())
	gives(t, ctx, l, a)
	takes(t, ctx, l, b, "")
}

// One who comes while somebody waits does not overtake, though a slot is free.
//
//	b waits for a's slot; a unlocks; c comes before b asks
func TestNewcomerTakesNoSlotWhileSomebodyWaits(t *testing.T) {
	for _, once := range []bool{false, true} {
		l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
		a, b, c := begin(t, ctx, l, "x", locker.WithSlots(1)), begin(t, ctx, l, "x", locker.WithSlots(1)), begin(t, ctx, l, "x", locker.WithSlots(1))
		takes(t, ctx, l, a, "")
		takes(t, ctx, l, b, b.pool())
		gives(t, ctx, l, a)
		if ahead, err := l.store.ask(ctx, c, once); err != nil || ahead != b.key {
			t.Fatalf("c is behind %q, %v, want %q", ahead, err, b.key)
		}
		if !once {
			takes(t, ctx, l, c, b.key) // also when it looks
		}
		takes(t, ctx, l, b, "")
		if b.place <= a.place {
			t.Errorf("place %d after %d", b.place, a.place)
		}
	}
}

// Which slot was taken is not known, so all are looked at, in several requests.
func TestSlotIsGivenBackUnheardWhicheverItIs(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	for _, k := range []int{0, mostOps - 2, mostOps - 1, mostOps, locker.MaxSlots - 1} {
		a := begin(t, ctx, l, "x", locker.WithSlots(locker.MaxSlots))
		if _, err := l.store.client.Put(ctx, a.slotKey(k), ""); err != nil { // as if others had those before
			t.Fatal(err)
		}
		a.unsure = true
		if err := l.store.Withdraw(ctx, a); err != nil || a.left() {
			t.Fatal(err)
		}
		wantKeys(t, ctx, l)
	}
}
