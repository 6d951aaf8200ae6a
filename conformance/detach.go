package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
)

var detachClauses = []Clause{
	{"detach", "A lock that was detached must stay taken, and whoever resumes it must have it in one step: with a greater token, before those who wait, and once.", detach},
	{"detach-expiry", "A lock that was detached must come to others when its TTL ends, and nobody must resume it from then on.", detachExpiry},
	{"detach-lost-reply", "If the answer to a Resume is lost, the caller must be able to go on with what the error has, and the handle must still be good for one.", detachLostReply},
	{"detach-renew", "Whoever has the handle of a lock must be able to have it last until somebody resumes it, and must not lengthen what somebody else has by then.", detachRenew},
	{"detach-unlock", "Whoever has the handle of a lock must be able to free it, and must not free what somebody else has by then.", detachUnlock},
	{"detach-late", "A lock that was handed over, or freed by its handle, must refuse the first requests of the process that had it first: one that arrives later makes a lock that nobody holds.", detachLate},
}

// detaching starts two processes, and skips the clause if locks cannot leave them.
func (x *trial) detaching() (a, b locker.Locker) {
	a, b = x.locker(), x.locker()
	if !a.Guarantees().Detaches {
		x.skip("lock that can leave its process (Guarantees.Detaches)")
	}
	return a, b
}

// detached detaches a lock. If the machine stalls, its renewal may be refused, and rightly so: then it asks again.
func (x *trial) detached(held *locker.Lock) locker.Handle {
	h, err := askSlowly(x.patient(), x, func() (locker.Handle, error) { return held.Detach(x.patient()) })
	switch {
	case err != nil:
		x.failf("Detach: %w", err)
	case !errors.Is(held.Err(), locker.ErrUnlocked) || held.Context().Err() == nil:
		x.failf("a lock that was detached is still believed in: its error is %v", held.Err())
	case held.Unlock(x.ctx) != nil:
		x.failf("Unlock of a lock that was detached: %w", held.Unlock(x.ctx))
	}
	return h
}

func (x *trial) resumed(l locker.Locker, h locker.Handle, after *locker.Lock, opts ...locker.Option) *locker.Lock {
	opts = append([]locker.Option{x.long()}, opts...)
	lock, err := locker.Resume(x.patient(), l, h, opts...)
	switch {
	case err != nil:
		x.failf("Resume: %w", err)
	case lock.Token() <= after.Token():
		x.failf("a lock was resumed with token %d, and before it had token %d", lock.Token(), after.Token())
	}
	x.noteHold(lock, opts)
	return lock
}

// usedUp requires that a handle is good for nobody.
func (x *trial) usedUp(l locker.Locker, h locker.Handle, when string) {
	lock, err := locker.Resume(x.patient(), l, h)
	if lock != nil || !errors.Is(err, locker.ErrLost) {
		x.failf("Resume %s returned %s and error %v, want ErrLost", when, had(lock), err)
	}
}

func detach(x *trial) {
	a, b := x.detaching()
	name := x.name()
	held := x.lock(a, name, x.long())
	ctx, cancel := context.WithCancel(x.patient())
	defer cancel()
	w := x.waitBehindWithin(ctx, held, x.locker())
	h := x.detached(held)
	x.taken(a, name, "of a lock that was detached, by its process")
	x.taken(b, name, "of a lock that was detached")
	going := x.resumed(b, h, held)
	x.usedUp(a, h, "with a handle that was used up")
	x.taken(a, name, "of a lock that was resumed")
	again := x.resumed(a, x.detached(going), going) // by the process that had it first
	if w.back() {
		x.failf("Lock returned error %v to a waiter while the lock was handed over", w.err)
	}
	x.unlock(again)
	next := x.served(w, "after a lock that was resumed")
	if next.Token() <= again.Token() {
		x.failf("token %d was granted after token %d, which was resumed", next.Token(), again.Token())
	}
	x.usedUp(b, h, "of a lock that somebody else has")
	x.unlock(next)
	x.usedUp(b, h, "of a lock that is free")
}

func detachExpiry(x *trial) {
	a, b := x.detaching()
	name := x.name()
	began := time.Now()
	held := x.lock(a, name, x.ttl())
	h := x.detached(held)
	w := x.wait(x.patientFor(x.h.TTL), b, name, x.long())
	next := x.served(w, "when the TTL of a lock that was detached had ended")
	if early := x.h.TTL - time.Since(began); early > 0 {
		x.failf("a lock that was detached came to somebody else %v before its TTL had ended", early)
	}
	x.usedUp(a, h, "of a lock that has ended")
	x.unlock(next)
}

// detachRenew renews for longer than anything is waited for. So whatever is renewed by mistake does not end in time.
func detachRenew(x *trial) {
	a, b := x.detaching()
	held, h := x.renewedOnce(a, b)
	name := held.Name()
	x.detached(x.resumed(a, h, held, x.ttl())) // so that nobody removes it before its end
	x.renewsNothing(b, h, "of a lock that was resumed")
	next := x.served(x.wait(x.patientFor(x.h.TTL), b, name, x.long()), "when the TTL of a lock that was resumed, and detached again, had ended")
	x.renewsNothing(a, h, "of a lock that somebody else has")
	x.unlock(next)
	x.renewsNothing(b, h, "of a lock that is free")
	x.free(a, name, "after a handle of it was renewed in vain")
	if breaker, ok := x.breaks(b); ok {
		h := x.detached(x.lock(a, name, x.long()))
		x.breakNow(breaker, name, "a lock that was detached")
		x.renewsNothing(a, h, "of a lock that was broken")
		x.free(b, name, "after it was broken, and its handle renewed in vain")
	}
}

// renewedOnce returns a lock that was detached, renewed by another process, and is there when its first TTL has ended. If the machine stalls for that
// TTL, the lock has ended, and rightly so: then another one gets a longer TTL.
func (x *trial) renewedOnce(a, b locker.Locker) (held *locker.Lock, h locker.Handle) {
	var err error
	for _, ttl := range []time.Duration{x.h.TTL, 3 * x.h.TTL, 9 * x.h.TTL} {
		held = x.lock(a, x.name(), locker.WithTTL(ttl))
		began := time.Now()
		h = x.detached(held)
		switch err = x.renewHandle(b, h); {
		case err == nil:
			if lock, err := b.Lock(x.within(5*ttl/4), held.Name()); err == nil {
				_ = lock.Unlock(x.ctx)
				x.failf("a lock that was detached, and renewed, came to somebody else when its first TTL had ended")
			}
			return held, h
		case time.Since(began) < ttl:
			x.failf("RenewHandle of a lock that was detached: %w", err)
		}
	}
	x.failf("RenewHandle of a lock that was detached, each time later than its TTL: %w", err)
	return nil, ""
}

func (x *trial) renewHandle(l locker.Locker, h locker.Handle) error {
	_, err := askSlowly(x.patient(), x, func() (any, error) {
		return nil, locker.RenewHandle(x.patient(), l, h, locker.WithTTL(x.longTTL()+2*x.h.patience))
	})
	return err
}

// renewsNothing requires that a handle is good for no renewal.
func (x *trial) renewsNothing(l locker.Locker, h locker.Handle, when string) {
	if err := x.renewHandle(l, h); !errors.Is(err, locker.ErrLost) {
		x.failf("RenewHandle %s returned error %v, want ErrLost", when, err)
	}
}

func detachLostReply(x *trial) {
	a, b := x.detaching()
	c, name := x.networked(), x.name()
	held := x.lock(a, name, x.long())
	h := x.detached(held)
	either := x.resumedUnheard(c, h)
	going := x.resumed(b, either, held)
	x.usedUp(a, either, "with what the error of an earlier one had, which was used up")
	x.usedUp(a, h, "with a handle that was used up")
	x.unlock(going)
	x.freeBeforeLease(a, name, "after a lock that was resumed")
}

// resumedUnheard has a process resume a lock, and returns what stands for it when the answer was lost.
func (x *trial) resumedUnheard(c Process, h locker.Handle) locker.Handle {
	x.unlock(x.lock(c.Locker, x.name())) // its connections are there
	c.CutReplies()
	defer c.Heal()
	lock, err := locker.Resume(x.within(x.h.TTL), c.Locker, h)
	failed, unknown := errors.AsType[*locker.ResumeError](err)
	switch {
	case lock != nil, unknown != errors.Is(err, locker.ErrOutcomeUnknown), !unknown && !errors.Is(err, locker.ErrUnavailable):
		x.failf("Resume without an answer returned %s and error %v, want a ResumeError", had(lock), err)
	case unknown:
		return failed.Handle
	}
	return h // of a store that reads first, and has sent nothing else
}

func detachUnlock(x *trial) {
	a, b := x.detaching()
	held := x.lock(a, x.name(), x.long())
	w := x.waitBehindWithin(x.patient(), held, x.locker())
	h := x.detached(held)
	x.unlockHandle(b, h)
	next := x.served(w, "after UnlockHandle")
	if next.Token() <= held.Token() {
		x.failf("token %d was granted after token %d, whose lock was freed by its handle", next.Token(), held.Token())
	}
	x.unlocksNothing(a, h, "of a lock that somebody else has")
	x.unlock(next)
	x.unlocksNothing(b, h, "of a lock that is free")
	x.usedUp(b, h, "of a lock that was freed by its handle")

	held = x.lock(a, x.name(), x.long())
	h = x.detached(held)
	either := x.resumedUnheard(x.networked(), h)
	going := x.resumed(a, either, held)
	x.unlocksNothing(b, either, "of a lock that was resumed")
	either = x.resumedUnheard(x.networked(), x.detached(going))
	x.unlockHandle(b, either)
	x.freeBeforeLease(a, held.Name(), "after UnlockHandle with what the error of a Resume had")
}

func (x *trial) unlockHandle(l locker.Locker, h locker.Handle) {
	if err := locker.UnlockHandle(x.patient(), l, h); err != nil {
		x.failf("UnlockHandle of a lock that was detached: %w", err)
	}
}

// unlocksNothing requires that a handle frees nothing.
func (x *trial) unlocksNothing(l locker.Locker, h locker.Handle, when string) {
	if err := locker.UnlockHandle(x.patient(), l, h); !errors.Is(err, locker.ErrLost) {
		x.failf("UnlockHandle %s returned error %v, want ErrLost", when, err)
	}
}

func detachLate(x *trial) {
	_, b := x.detaching()
	x.lateAfter(x.networked(), b, "handed over, and given back", func(first *locker.Lock) {
		x.unlock(x.resumed(b, x.detached(first), first))
	})
	x.lateAfter(x.networked(), b, "freed by its handle", func(first *locker.Lock) {
		x.unlockHandle(b, x.detached(first))
	})
}
