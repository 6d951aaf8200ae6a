package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

var slotClauses = []Clause{
	{"slots", "Each holder must have a slot of its own, the smallest that is free, and there must be no more holders than slots.", slots},
	{"slots-crowd", "Among many goroutines, no two may have one slot at the same time, and none may be refused by the slot's guard while it holds it.", slotsCrowd},
	{"slots-at-once", "Of those who try at the same time none may be told that all slots are taken while one is free.", slotsAtOnce},
	{"slots-tokens", "The tokens of those who have a slot one after another must increase, or no guard can protect what belongs to the slot.", slotsTokens},
	{"slots-told", "Waiters must be told when a slot comes free, in the order in which they came if the backend is fair.", slotsTold},
	{"slots-dead", "A dead holder's slot must come back after its lease, and the others must keep theirs.", slotsDead},
	{"slots-renewal", "Each slot's lease must be renewed, also where one process has several.", slotsRenewal},
	{"slots-mismatch", "If two programs disagree about how many slots there are, or whether there are any, they must be told.", slotsMismatch},
	{"slots-release-late", "A release that comes after the end of the lease must say so, and must not free what somebody else has by now.", slotsReleaseLate},
	{"slots-lost-reply", "An attempt whose reply is lost must not leave a slot that nobody has.", slotsLostReply},
	{"slots-break", "Whoever breaks one holder's slot must not take the others'.", slotsBreak},
}

// slotted starts one more process, and skips the clause unless the backend has slots.
func (x *trial) slotted() locker.Locker {
	l := x.locker()
	if !l.Guarantees().Slots {
		x.skip("slot (Guarantees.Slots)")
	}
	return l
}

// slot locks a slot and requires that it is this one.
func (x *trial) slot(l locker.Locker, name string, want, n int, opts ...locker.Option) *locker.Lock {
	lock := x.lock(l, name, append(opts, locker.WithSlots(n))...)
	if lock.Slot() != want || lock.Token() == 0 || lock.SharedToken() != 0 {
		x.failf("of %d slots the smallest that is free is %d, granted was slot %d with token %d, number %d", n, want, lock.Slot(), lock.Token(), lock.SharedToken())
	}
	return lock
}

func slots(x *trial) {
	a, b, name := x.slotted(), x.locker(), x.name()
	const n = 3
	var held []*locker.Lock
	for k, l := range []locker.Locker{a, b, a} {
		held = append(held, x.slot(l, name, k, n, x.long()))
	}
	for _, l := range []locker.Locker{a, b} {
		if lock, err := l.TryLock(x.patient(), name, locker.WithSlots(n)); !errors.Is(err, locker.ErrTaken) || lock != nil {
			x.failf("TryLock beside %d holders of %d slots returned %s and error %v, want ErrTaken", n, n, had(lock), err)
		}
	}
	x.unlock(held[1])
	x.unlock(held[0])
	held[0], held[1] = x.slot(b, name, 0, n), x.slot(a, name, 1, n)
	for _, lock := range held {
		if err := lock.Renew(x.patient()); err != nil {
			x.failf("Renew of slot %d: %w", lock.Slot(), err)
		}
		x.unlock(lock)
	}
	x.free(a, name, "after all slots were given back")
}

func slotsAtOnce(x *trial) { x.roomForAll(x.slotted(), locker.WithSlots(triesAtOnce)) }

// slotsCrowd has more goroutines than there are slots.
func slotsCrowd(x *trial) {
	const n, goroutines, rounds = 3, 4, 8
	var inside [n]atomic.Int32
	var guard fencing.Memory
	name := x.name()
	x.each(append(x.lockers(2), x.slotted()), goroutines, func(l locker.Locker) {
		for range rounds {
			lock, err := x.lockSlowly(x.patient(), l, name, locker.WithSlots(n))
			if err != nil {
				x.failf("Lock of a slot: %w", err)
			}
			slot := lock.Slot()
			if slot < 0 || slot >= n {
				x.failf("slot %d of %d was granted", slot, n)
			}
			if inside[slot].Add(1) != 1 {
				err = fmt.Errorf("two have slot %d at once", slot)
			}
			resource := locker.SlotResource(name, slot)
			err = errors.Join(err, guard.Check(x.ctx, resource, lock.Token()))
			time.Sleep(100 * time.Microsecond)
			err = errors.Join(err, guard.Check(x.ctx, resource, lock.Token()))
			inside[slot].Add(-1)
			if err = errors.Join(err, x.unlockInACrowd(lock)); err != nil {
				x.failf("%w", err)
			}
		}
	})
}

func slotsTokens(x *trial) {
	a, b, name := x.slotted(), x.locker(), x.name()
	var last [2]fencing.Token
	for round := range 3 {
		first, second := x.slot(a, name, 0, 2, x.long()), x.slot(b, name, 1, 2, x.ttl(), locker.WithoutRenewal())
		for slot, lock := range []*locker.Lock{first, second} {
			if lock.Token() <= last[slot] {
				x.failf("in round %d slot %d was granted with token %d after token %d", round, slot, lock.Token(), last[slot])
			}
			last[slot] = lock.Token()
		}
		x.unlock(first)
		x.event(second.Lost(), "a slot's lease ends")
		x.eventually("the store ends the lease, too", func() bool {
			lock, err := a.TryLock(x.patient(), name)
			if err == nil {
				x.unlock(lock)
			}
			return err == nil
		})
	}
}

func slotsTold(x *trial) {
	a, ls, name := x.slotted(), x.lockers(3), x.name()
	held := []*locker.Lock{x.slot(a, name, 0, 2, x.long()), x.slot(a, name, 1, 2, x.long())}
	began := time.Now()
	var line []*waiter
	for _, l := range ls {
		w := x.wait(x.patient(), l, name, locker.WithSlots(2), x.long())
		line = append(line, w)
		x.waits(w, a, name)
		if i, ok := x.inspects(a); ok && a.Guarantees().Fair {
			x.queuedAtLeast(i, name, len(line))
		}
	}
	x.unlock(held[1])
	for k, left := 0, line; len(left) > 0; k++ {
		w, rest := x.next(left, "after a slot was given back")
		if w != left[0] && a.Guarantees().Fair {
			x.failf("a waiter for a slot was served before one that came first")
		}
		if w.lock.Slot() != 1 {
			x.failf("slot 1 of 2 was given back, and slot %d was granted", w.lock.Slot())
		}
		x.unlock(w.lock)
		left = rest
	}
	x.inTime(began, time.Since(began), x.longTTL()*9/10, "waiters slept until the end of a lease of %v", x.longTTL())
	x.unlock(held[0])
}

func slotsDead(x *trial) {
	b, dead, c, name := x.slotted(), x.networked(), x.locker(), x.name()
	gone, stays := x.slot(dead.Locker, name, 0, 2, x.ttl()), x.slot(b, name, 1, 2, x.long())
	w := x.waitBehindWithin(x.patientFor(x.h.TTL), gone, c, locker.WithSlots(2))
	x.waits(w, b, name)
	dead.Cut()
	lock := x.served(w, "after the lease of a dead holder")
	x.alone(gone, w)
	if lock.Slot() != 0 || lock.Token() <= gone.Token() {
		x.failf("slot 0, whose holder with token %d died, came back as slot %d with token %d", gone.Token(), lock.Slot(), lock.Token())
	}
	if err := stays.Renew(x.patient()); err != nil {
		x.failf("a slot was lost when another's holder died: %w", err)
	}
	x.unlock(lock)
	x.unlock(stays)
}

func slotsRenewal(x *trial) {
	a, b := x.slotted(), x.locker()
	x.renewedTogether(b, []locker.Option{locker.WithSlots(2)}, func(name string, ttl locker.Option) []*locker.Lock {
		return []*locker.Lock{x.slot(a, name, 0, 2, ttl), x.slot(a, name, 1, 2, ttl)}
	})
}

// slotsMismatch asks for what does not go with what is held, and with what is waited for.
func slotsMismatch(x *trial) {
	a, b, c, name := x.slotted(), x.locker(), x.locker(), x.name()
	three, exclusive := locker.WithSlots(3), locker.WithMinValidity(0)
	refused := func(l locker.Locker, when string, opt locker.Option, words ...string) {
		for _, ask := range []func(context.Context, string, ...locker.Option) (*locker.Lock, error){l.TryLock, l.Lock} {
			lock, err := ask(x.patient(), name, opt)
			if !errors.Is(err, locker.ErrMismatch) || errors.Is(err, locker.ErrTaken) || lock != nil {
				x.failf("%s, the answer was %s and error %v, want ErrMismatch", when, had(lock), err)
			}
			for _, word := range words {
				if !strings.Contains(err.Error(), word) {
					x.failf("%s, the error does not say %q: %w", when, word, err)
				}
			}
		}
	}
	held := x.slot(a, name, 0, 3, x.long())
	for _, l := range []locker.Locker{a, b} {
		refused(l, "asked for one of 5 slots where there are 3", locker.WithSlots(5), "3 slots", "5 slots")
		refused(l, "asked for one of 2 slots where there are 3", locker.WithSlots(2), "3 slots", "2 slots")
		refused(l, "asked for an exclusive lock where there are 3 slots", exclusive, "3 slots", "exclusive")
	}
	if b.Guarantees().Shared {
		refused(b, "asked for a shared lock where there are 3 slots", reading, "3 slots", "shared")
	}
	rest := []*locker.Lock{x.lock(b, name, three, x.long()), x.lock(c, name, three, x.long())}
	w := x.wait(x.patient(), b, name, three)
	x.waits(w, a, name)
	refused(c, "asked for one of 2 slots where somebody waits for one of 3", locker.WithSlots(2), "3 slots", "2 slots")
	x.unlock(held)
	x.unlock(x.served(w, "after a slot was given back"))
	for _, lock := range rest {
		x.unlock(lock)
	}
	held = x.lock(a, name, x.long())
	refused(b, "asked for one of 3 slots where the lock is exclusive", three, "exclusive", "3 slots")
	x.unlock(held)
	if b.Guarantees().Shared {
		held = x.lock(a, name, reading, x.long())
		refused(b, "asked for one of 3 slots where the lock is shared", three, "shared", "3 slots")
		x.unlock(held)
	}
	x.unlock(x.slot(b, name, 0, 7)) // nobody is there any more
}

func slotsReleaseLate(x *trial) {
	a, b, name := x.slotted(), x.locker(), x.name()
	held := x.slot(a, name, 0, 1, x.ttl(), locker.WithoutRenewal())
	next := x.wait(x.patientFor(x.h.TTL), b, name, locker.WithSlots(1), x.long())
	lock := x.served(next, "after the end of a slot's lease")
	if err := held.Unlock(x.patient()); !errors.Is(err, locker.ErrLost) {
		x.failf("Unlock of a slot whose lease had ended returned %v, want ErrLost", err)
	}
	if err := lock.Renew(x.patient()); err != nil {
		x.failf("the next holder's slot was lost to a late Unlock: %w", err)
	}
	x.unlock(lock)
}

func slotsLostReply(x *trial) {
	b, a, name := x.slotted(), x.networked(), x.name()
	x.unlock(x.lock(a.Locker, name, locker.WithSlots(2))) // its connections are there
	stays := x.slot(b, name, 0, 2, x.long())
	err := x.tryUnheard(a, name, locker.WithSlots(2))
	began := time.Now()
	second := x.slot(b, name, 1, 2, x.long())
	if took := time.Since(began); !errors.Is(err, locker.ErrOutcomeUnknown) && took > x.longTTL()/2 {
		x.failf("a slot came free %v after an attempt whose reply was lost", took)
	}
	x.unlock(second)
	x.unlock(stays)
	x.free(b, name, "after all slots were given back")
}

// slotsBreak also looks at what Inspect shows.
func slotsBreak(x *trial) {
	a, b, c, name := x.slotted(), x.locker(), x.locker(), x.name()
	breaker, i := x.breaker(c), x.inspector(c)
	stays := x.slot(a, name, 0, 2, x.long(), locker.WithHolder("the first"))
	goes := x.slot(b, name, 1, 2, x.long(), locker.WithHolder("the second"))
	ended := goes.Lost()
	info := x.inspect(i, name)
	if !info.Held || info.Kind != locker.KindSlots || info.Slots != 2 || len(info.Holders) != 2 ||
		info.Holders[0].Text != "the first" || info.Holders[0].Number != locker.Number(stays.Token()) || info.Holders[0].Slot != 0 ||
		info.Holders[1].Text != "the second" || info.Holders[1].Slot != 1 {
		x.failf("two slots, with tokens %d and %d, are shown as %+v", stays.Token(), goes.Token(), info)
	}
	x.breakOnly(breaker, name, "one slot", locker.Number(goes.Token()))
	if err := goes.Renew(x.patient()); !errors.Is(err, locker.ErrLost) {
		x.failf("Renew by a holder whose slot was broken returned %v, want ErrLost", err)
	}
	x.event(ended, "a holder learns that its slot was broken")
	if err := stays.Renew(x.patient()); err != nil {
		x.failf("a slot was lost when another was broken: %w", err)
	}
	next := x.slot(c, name, 1, 2)
	if next.Token() <= goes.Token() {
		x.failf("slot 1 was granted with token %d after token %d, which was broken", next.Token(), goes.Token())
	}
	x.unlock(next)
	x.breakNow(breaker, name, "all")
	x.free(c, name, "after all slots were broken")
}
