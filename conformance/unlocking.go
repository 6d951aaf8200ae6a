package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
)

var unlockClauses = []Clause{
	{"unlock-twice", "A second Unlock, such as a deferred one, must not free somebody else's lock.", unlockTwice},
	{"unlock-with-context-over", "Unlock runs in the clean-up of work that was cancelled, and must free the lock all the same.", unlockWithContextOver},
	{"unlock-after-expiry", "A holder that was too slow must learn that it lost the lock, and must not free its successor's.", unlockAfterExpiry},
	{"unlock-after-break", "Unlock must compare in the store before it frees: the holder may not know yet that it has lost the lock.", unlockAfterBreak},
	{"late-unlock", "A release that the network delivers late must not free the next holder's lock.", lateUnlock},
	{"late-unlock-reply", "Release must compare and free in one step: between two steps the lock may change hands.", lateUnlockReply},
	{"silent-unlock", "A goroutine whose context ends must not wait for one before it that unlocks at a silent store.", silentUnlock},
	{"late-renewal", "A renewal that the network delivers late must not touch the next holder's lock.", lateRenewal},
	{"lost-unlock-reply", "A release whose reply is lost has freed the lock, and asking again must not report a loss.", lostUnlockReply},
}

func unlockTwice(x *trial) {
	a, b, c, name := x.locker(), x.locker(), x.locker(), x.name()
	first := x.lock(a, name)
	x.unlock(first)
	if err := first.Err(); !errors.Is(err, locker.ErrUnlocked) || errors.Is(err, locker.ErrLost) {
		x.failf("a lock that was unlocked says %v, want ErrUnlocked, which is no loss", err)
	}
	held := x.tryLock(b, name, "after unlock")
	if err := first.Unlock(x.patient()); err != nil {
		x.failf("the first Unlock succeeded, the second returned: %w", err)
	}
	x.taken(c, name, "while another client holds it, after a second Unlock by the first")
	x.unlock(held)
}

func unlockWithContextOver(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	held := x.lock(a, name, x.long())
	if err := held.Unlock(over()); err != nil {
		x.failf("Unlock with a context that is over: %w", err)
	}
	x.free(b, name, "after Unlock with a context that was over")
}

func unlockAfterExpiry(x *trial) {
	a, b, c, name := x.locker(), x.locker(), x.locker(), x.name()
	late := x.lock(a, name, x.ttl(), locker.WithoutRenewal())
	next := x.lock(b, name)
	for range 2 {
		if err := late.Unlock(x.patient()); !errors.Is(err, locker.ErrLost) {
			x.failf("Unlock of a lock that another client has by now returned %v, want ErrLost", err)
		}
	}
	x.taken(c, name, "while the next holder has it, after an Unlock by the last")
	x.unlock(next)
}

// unlockAfterBreak has a holder unlock that does not know that its lock was broken. There
// is no other way to see that the store compares: a lock that has ended by the holder's
// own clock is not released at all.
func unlockAfterBreak(x *trial) {
	a, b, third, name := x.locker(), x.locker(), x.client(), x.name()
	c := third.Locker
	breaker, ok := x.breaks(c)
	if !ok { // with a network, late-unlock checks the same
		x.skipUnless(third.Network == nil && !c.Guarantees().Exclusion.Has(locker.Unpromised), "Exclusion", "locker.Breaker",
			"Give Process.Locker a Break, in your test alone if need be, or a network to break")
	}
	broken := x.lock(a, name)
	x.breakNow(breaker, name, "a held lock")
	held := x.lock(b, name)
	if err := broken.Unlock(x.patient()); !errors.Is(err, locker.ErrLost) {
		x.failf("Unlock of a lock that was broken returned %v, want ErrLost", err)
	}
	x.taken(c, name, "while the next holder has it, after an Unlock by the one whose lock was broken")
	x.unlock(held)
}

func lateUnlock(x *trial) { x.unlockLate(func(c Process) { c.Cut() }) }

func lateUnlockReply(x *trial) { x.unlockLate(func(c Process) { c.CutReplies() }) }

// unlockLate delivers a release, or the answer to it, when another client has the lock.
func (x *trial) unlockLate(silence func(Process)) {
	a, b, c, name := x.networked(), x.locker(), x.locker(), x.name()
	late := x.lock(a.Locker, name, x.ttl(), locker.WithoutRenewal())
	silence(a)
	unlocked := make(chan struct{})
	go func() {
		defer close(unlocked)
		_ = late.Unlock(x.patient()) // any result is right
	}()
	held := x.lock(b, name)
	a.Deliver()
	x.event(unlocked, "Unlock returns after its reply was delivered")
	for end := time.Now().Add(x.h.TTL / 2); time.Now().Before(end); {
		x.taken(c, name, "while the next holder has it, after a late release by the last")
	}
	if err := held.Err(); err != nil {
		x.failf("the next holder's lock was lost to a late release by the last: %w", err)
	}
	x.unlock(held)
}

// silentUnlock has a goroutine give up behind one that unlocks, while the store is silent.
func silentUnlock(x *trial) {
	soon := x.h.TTL / 2
	given, took := x.leavesBehind()
	for range 2 { // on a machine that stalls both may return long after that
		if took > soon {
			given, took = x.leavesBehind()
		}
	}
	x.inTime(given, took, soon, "a goroutine whose context had ended came back each time after the one before it, whose Unlock waited for a silent store")
}

// leavesBehind returns when the goroutine gave up, and how long it took it to come back, or 0
// if it came before Unlock. It wants another holder's text, so that the lease is not passed on
// to it in memory.
func (x *trial) leavesBehind() (given time.Time, took time.Duration) {
	a, name := x.networked(), x.name()
	held := x.lock(a.Locker, name, x.long())
	ctx, cancel := context.WithCancelCause(x.ctx)
	w := x.wait(ctx, a.Locker, name, x.long(), locker.WithHolder("another"))
	x.stands(w)
	a.Cut()
	unlocked := make(chan struct{})
	go func() {
		defer close(unlocked)
		_ = held.Unlock(x.patient()) // any result is right
	}()
	x.event(held.Context().Done(), "the context of a lock ends when it is unlocked")
	why := errors.New("the caller's own reason")
	given = time.Now()
	cancel(why)
	x.returned(w, "when its context ends, though another goroutine's Unlock waits for the store")
	took = time.Since(given)
	select {
	case <-unlocked:
	default:
		took = 0
	}
	a.Heal()
	x.event(unlocked, "Unlock returns after the network healed")
	switch {
	case w.err == nil:
		x.failf("Lock succeeded though the store is silent")
	case !errors.Is(w.err, why), !errors.Is(w.err, locker.ErrTaken) && !errors.Is(w.err, locker.ErrUnavailable):
		x.failf("a wait that ended with its context returned %w, want ErrTaken or ErrUnavailable and the cause %q", w.err, why)
	}
	return given, took
}

func lateRenewal(x *trial) {
	a, b, c, name := x.networked(), x.locker(), x.locker(), x.name()
	late := x.lock(a.Locker, name, x.ttl(), locker.WithoutRenewal())
	a.Cut()
	renewed := make(chan error, 1)
	go func() { renewed <- late.Renew(x.patient()) }()
	held := x.lock(b, name, x.long())
	a.Deliver()
	if err := receive(x, x.h.patience, renewed, "Renew returns after its request was delivered"); err == nil || late.Err() == nil {
		x.failf("a renewal that arrived after the next holder had the lock returned %v, and the lock says %v", err, late.Err())
	}
	x.taken(c, name, "while the next holder has it, after a late renewal by the last")
	if err := held.Unlock(x.patient()); err != nil {
		x.failf("the next holder's lock was lost to a late renewal by the last: %w", err)
	}
	x.free(c, name, "after unlock by the next holder")
}

func lostUnlockReply(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	held := x.lock(a.Locker, name, x.long())
	w := x.wait(x.patient(), b, name, x.long())
	x.waits(w, b, name)
	<-time.After(x.h.TTL + x.h.TTL/4) // some clients ask a connection that was idle for a sign of life, and wait for that
	if a.Locker.Guarantees().Herd {   // a holder hears who waits when it gives a sign of life
		if err := held.Renew(x.patient()); err != nil {
			x.failf("Renew: %v", err)
		}
	}
	a.CutReplies()
	unlocked := make(chan error, 1)
	go func() { unlocked <- held.Unlock(x.patient()) }()
	lock := x.served(w, "after a release whose reply was lost")
	a.Heal()
	if err := receive(x, x.h.patience, unlocked, "Unlock returns after the network healed"); errors.Is(err, locker.ErrLost) {
		x.failf("Unlock freed the lock and its reply was lost; it reports %q, though nothing was lost", err)
	}
	x.unlock(lock)
	x.unlock(x.lockOnceHealed(a.Locker, name))
}
