package conformance

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

var losingClauses = []Clause{
	{"renewal", "A lock that is not renewed in the store ends there while its holder still believes.", renewal},
	{"expiry", "A holder must stop believing before its lease ends, by its own clock, or two believe at once.", expiry},
	{"early", "A lease that the store ends before its holder stops believing makes two holders, and renewals hide it.", early},
	{"renew-by-hand", "A program that renews by hand relies on the new deadline.", renewByHand},
	{"hasty-renewal", "A call of Renew that has no time left must not lose a lock that the backend goes on renewing.", hastyRenewal},
	{"renew-in-anothers-context", "A heartbeat may renew one lock in the context of another: the end of that one must not pass for the loss of this one.", renewInAnothersContext},
	{"renew-in-ended-context", "A renewal that was not sent is none: a holder that is told so believes beside the next one.", renewInEndedContext},
	{"silence", "A holder that hears nothing from the store must stop believing before anybody else gets the lock.", silence},
	{"told-nothing", "A store, or what lies before it, may end a connection that the holder still takes for open: that must not free the lock while the holder believes, unless the declaration says so.", toldNothing},
	{"short-after-long", "The lock of a dead holder must come free after its own TTL, even if its process had one with a longer TTL before.", shortAfterLong},
	{"max-hold", "A holder that hangs must not keep everybody else out for ever.", maxHold},
	{"longest-hold", "A maximum hold so long that a sum of times overflows must not make the lock end at once.", longestHold},
	{"slow-reply", "Validity counted from the reply outlasts the lease by as long as the reply took.", slowReply},
	{"slow-hand-over", "The lease of a lock that is handed over within a process begins when the release arrives, not when its answer does.", slowHandOver},
	{"long-wait", "Validity counted from the call is over before a lock that was waited for arrives, so nobody who waits for longer than a lease ever gets one.", longWait},
	{"min-validity", "A lock that is granted too late to be of use must be refused, and not left in the store.", minValidity},
}

// renewal holds a lock for several TTLs. A machine that stalls for longer than a lease
// loses its lock, and rightly so: renewal does not work only if the lock is lost with each
// of three TTLs. But a second holder while this one believes is never the machine's fault.
func renewal(x *trial) {
	a, b := x.locker(), x.locker()
	var held *locker.Lock
	var lost error
	for _, ttl := range []time.Duration{x.h.TTL, 3 * x.h.TTL, 9 * x.h.TTL} {
		name := x.name()
		held = x.lock(a, name, locker.WithTTL(ttl))
		w := x.waitBehindWithin(x.patientFor(4*ttl), held, b)
		select {
		case <-w.done:
			x.alone(held, w)
		case <-held.Lost():
		case <-time.After(5 * ttl / 2):
		}
		if lost = x.unlockAll(held.Err(), []*locker.Lock{held}); lost == nil {
			x.unlock(x.served(w, "after unlock"))
			return
		}
		x.returned(w, "after the lock was lost")
		if w.err == nil {
			x.unlock(w.lock)
		}
	}
	if !x.notRenewed(held) {
		x.failf("a lock that is to be renewed was lost each time: %w", lost)
	}
}

// notRenewed reports whether one of these was lost because the machine held up its renewal,
// and none for another reason. A loss that Unlock alone has found is the store's: Err says
// then that the lock was unlocked.
func (x *trial) notRenewed(locks ...*locker.Lock) bool {
	excused := false
	for _, lock := range locks {
		var lost *locker.LostError
		if !errors.As(lock.Err(), &lost) {
			continue
		}
		if !x.ended(lock, lock.Deadline(), lost) {
			return false
		}
		excused = true
	}
	return excused
}

func expiry(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	held := x.lock(a, name, x.ttl(), locker.WithoutRenewal())
	if end := time.Now().Add(x.h.TTL); held.Deadline().IsZero() || held.Deadline().After(end) {
		x.failf("without renewal, a lock with a TTL of %v granted before %v is believed in until %v", x.h.TTL, end.Add(-x.h.TTL), held.Deadline())
	}
	ctx := x.lock(a, x.name(), x.ttl(), locker.WithoutRenewal()).Context() // nobody asks this one for Err
	w := x.waitBehind(held, b)
	lock := x.served(w, "after the last holder's lease has ended")
	x.alone(held, w)
	x.event(held.Lost(), "Lost closes at the end of the TTL")
	x.event(ctx.Done(), "the lock's context ends at the end of the TTL, though nobody asks")
	var lost *locker.LostError
	if !errors.As(held.Err(), &lost) || !errors.Is(lost, locker.ErrLost) || lost.Reason == 0 {
		x.failf("a lock that ended with its TTL says %v", held.Err())
	}
	if cause := context.Cause(ctx); !errors.Is(cause, locker.ErrLost) {
		x.failf("the context of a lost lock ended because of %v", cause)
	}
	if err := held.Renew(x.patient()); !errors.Is(err, locker.ErrLost) {
		x.failf("Renew of a lost lock returned %v, want ErrLost", err)
	}
	if err := lock.Err(); err != nil {
		x.failf("the next holder's lock was lost to a renewal by the last: %w", err)
	}
	x.unlock(lock)
}

// renewByHand renews a lock once. The next client must not get it before the new lease
// ends. As in renewal, a machine that stalls is given a longer TTL.
func renewByHand(x *trial) {
	a, b := x.locker(), x.locker()
	for _, ttl := range []time.Duration{x.h.TTL, 3 * x.h.TTL, 9 * x.h.TTL} {
		if x.renewedByHand(a, b, ttl) {
			return
		}
	}
	x.failf("a lock that was to be renewed after half of its validity was not, or was lost, each time")
}

func (x *trial) renewedByHand(a, b locker.Locker, ttl time.Duration) bool {
	name := x.name()
	held := x.lock(a, name, locker.WithTTL(ttl), locker.WithoutRenewal())
	first := held.Deadline()
	w := x.waitBehindWithin(x.patientFor(2*ttl), held, b)
	<-time.After(time.Until(first) / 2) // less than half of the TTL, for a lock that lasts as long as a session
	before := time.Now()
	if err := held.Renew(x.patient()); err != nil {
		if errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrLost) && time.Now().After(first) {
			return false
		}
		x.failf("Renew of a held lock: %w", err)
	}
	if held.Deadline().After(before.Add(ttl + time.Since(before))) {
		x.failf("after Renew the lock is believed in until %v, more than a TTL from now", held.Deadline())
	}
	if !held.Deadline().After(first) {
		x.failf("Renew did not move the deadline: %v, then %v", first, held.Deadline())
	}
	lock := x.served(w, "after the renewed lease has ended")
	x.alone(held, w)
	x.unlock(lock)
	return true
}

// hastyRenewal calls Renew all the time, with a context that has ended. As in renewal, a
// machine that stalls is given a longer TTL.
func hastyRenewal(x *trial) {
	l := x.locker()
	over, cancel := context.WithCancel(x.ctx)
	cancel()
	var held *locker.Lock
	var lost error
	for _, ttl := range []time.Duration{x.h.TTL, 3 * x.h.TTL, 9 * x.h.TTL} {
		held = x.lock(l, x.name(), locker.WithTTL(ttl))
		for end := time.Now().Add(5 * ttl / 2); held.Err() == nil && time.Now().Before(end); time.Sleep(ttl / 100) {
			_ = held.Renew(over) // any answer is right
		}
		if lost = held.Err(); lost == nil {
			x.unlock(held)
			return
		}
	}
	if !x.notRenewed(held) {
		x.failf("a lock that is to be renewed was lost each time while its holder asked for renewals in a context that had ended: %w", lost)
	}
}

// renewInAnothersContext renews a lock in the context of another one, which is lost before, by its
// maximum hold, or while the store is silent. The cause of the context is a LostError then, and is
// no answer of the store's.
func renewInAnothersContext(x *trial) {
	for range 3 {
		if x.renewInAnothersContext() {
			return
		}
	}
	x.failf("a silence of an eighth of a TTL lasted for a quarter of it, three times: the lock may be lost for that")
}

// renewInAnothersContext reports whether the store was silent for a short time only, so that the lock must be held afterwards.
func (x *trial) renewInAnothersContext() (short bool) {
	c, b, name := x.client(), x.locker(), x.name()
	held := x.lock(c.Locker, name, x.long())
	var since time.Time // of the silence
	for _, silent := range []bool{false, true} {
		if silent && (c.Network == nil || c.Locker.Guarantees().FreedBy == locker.FreedByConnection) { // which ends when a network heals
			continue
		}
		most := 2 * x.h.TTL
		soon := time.After(most - x.h.TTL/8) // so that the silence is short
		other := x.lock(c.Locker, x.name(), x.long(), locker.WithMaxHold(most))
		within, cancel := other.Bind(x.patient())
		defer cancel()
		renewed := make(chan error, 1)
		if silent {
			<-soon
			since = time.Now()
			c.CutReplies()
			go func() { renewed <- held.Renew(within) }()
		}
		x.event(within.Done(), "a context that was bound to a lock ends when that is lost")
		if !silent {
			go func() { renewed <- held.Renew(within) }()
		}
		err := receive(x, x.h.patience, renewed, "Renew returns when its context has ended")
		if err := held.Err(); err != nil {
			x.failf("a lock that was renewed in the context of another one, which was lost, is lost: %w", err)
		}
		if err == nil {
			x.failf("Renew returned nil, in a context that ended")
		}
		if silent {
			c.Heal()
		}
		_ = other.Unlock(x.ctx) // it is lost
	}
	if !since.IsZero() && time.Since(since) > x.h.TTL/4 {
		_ = held.Unlock(x.ctx) // it may be lost
		return false
	}
	x.taken(b, name, "that was renewed in the context of another lock, which was lost")
	x.unlock(held)
	return true
}

// endsWhenAsked is a context that ends when it is asked for the first time whether it has.
type endsWhenAsked struct {
	context.Context
	end context.CancelFunc
}

func (c endsWhenAsked) Err() error {
	err := c.Context.Err()
	c.end()
	return err
}

// renewInEndedContext renews in a context that has ended, and on a silent store in one that ends
// between two looks at it.
func renewInEndedContext(x *trial) {
	c, name := x.client(), x.name()
	held := x.lock(c.Locker, name, x.long())
	if err := held.Renew(over()); err == nil {
		x.failf("Renew returned nil, in a context that had ended")
	}
	if c.Network != nil && c.Locker.Guarantees().FreedBy != locker.FreedByConnection { // which ends when a network heals
		c.CutReplies()
		ctx, end := context.WithCancel(x.patient())
		if err := held.Renew(endsWhenAsked{ctx, end}); err == nil || !errors.Is(err, locker.ErrUnavailable) {
			x.failf("Renew on a silent store, in a context that ends when it is asked, returned %v, want ErrUnavailable", err)
		}
		c.Heal()
		if err := held.Err(); err != nil {
			x.failf("a lock that could not be renewed, and has most of its TTL left, is lost: %w", err)
		}
	}
	_ = held.Unlock(x.ctx) // whatever a connection that was cut makes of it
}

// silence cuts a holder off from its store. The holder must stop believing by itself, and
// before that nobody may get the lock: neither a waiter, nor a client that tries all the
// time and so makes the waiter look earlier than it would.
func silence(x *trial) {
	a, b, c, name := x.networked(), x.locker(), x.locker(), x.name()
	x.unlock(x.lock(a.Locker, x.name(), x.ttl()))
	<-time.After(x.h.TTL / 4) // what it may keep for a TTL is older than the lock now
	held := x.lock(a.Locker, name, x.ttl())
	lost := x.lock(a.Locker, x.name(), x.ttl()).Lost() // nobody asks this one for Err
	lasting := held.Deadline().IsZero()
	a.Cut()
	end := time.Now().Add(x.h.TTL) // every renewal was sent before the cut
	said := held.Deadline()
	if lasting {
		x.lastingSilence(held, b)
		return
	}
	w, impatient := x.waitBehind(held, b), x.takeFrom(held, "whose holder was cut off", c.TryLock)
	x.event(lost, "Lost closes when the store is silent, though nobody asks")
	x.event(held.Lost(), "Lost closes when the store is silent")
	if early := time.Until(said); early > x.h.TTL/20 {
		x.failf("a lock whose store fell silent was lost %v before its Deadline", early)
	}
	if held.Deadline().After(end) {
		x.failf("a lock whose store fell silent was believed in until %v after its TTL had passed", held.Deadline().Sub(end))
	}
	lock := x.served(w, "after the silent holder's lease has ended")
	x.alone(held, w)
	x.unlock(lock)
	x.takenInTime(impatient)
}

// lastingSilence is for locks without a lease: the holder may believe until somebody else
// gets the lock.
func (x *trial) lastingSilence(held *locker.Lock, b locker.Locker) {
	w := x.waitBehindWithin(x.within(3*x.h.TTL), held, b)
	x.returned(w, "when its context ends")
	x.alone(held, w)
	if w.err == nil {
		x.unlock(w.lock)
	}
}

// toldNothing ends the holder's connections on the store's side alone. A lock that assumes
// a server that is up may be given away at once, and then only the holder's own end counts.
func toldNothing(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	held := x.lock(a.Locker, name, x.ttl())
	a.EndUnheard()
	end := time.Now().Add(x.h.TTL)
	if a.Locker.Guarantees().Exclusion.Has(locker.ServerUp) {
		x.unlock(x.lock(b, name))
	} else {
		x.takenInTime(x.takeFrom(held, "whose holder was told nothing", b.TryLock))
	}
	x.event(held.Lost(), "Lost closes when connections have ended on the store's side alone")
	if !held.Deadline().IsZero() && held.Deadline().After(end) {
		x.failf("a lock whose connections had ended was believed in until %v after its TTL had passed", held.Deadline().Sub(end))
	}
}

// shortAfterLong cuts off a holder that had a lock with a long TTL before and has unlocked
// it. A session that the store keeps for the process may still last as long as that one.
func shortAfterLong(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	x.unlock(x.lock(a.Locker, name, x.long()))
	held := x.lock(a.Locker, name, x.ttl())
	if held.Deadline().IsZero() {
		x.unlock(held)
		return
	}
	a.Cut()
	before := time.Now()
	w := x.waitBehindWithin(x.patientFor(x.longTTL()), held, b)
	lock := x.served(w, "after a holder was cut off")
	x.alone(held, w)
	x.inTime(before, time.Since(before), x.longTTL()-x.h.TTL, "the lock came free with the %v of one that was given back and not with its own TTL of %v", x.longTTL(), x.h.TTL)
	x.unlock(lock)
}

func maxHold(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	before := time.Now()
	held := x.lock(a, name, x.long(), locker.WithMaxHold(x.h.TTL/2))
	if end := time.Now().Add(x.h.TTL / 2); held.Deadline().IsZero() || held.Deadline().After(end) {
		x.failf("a lock with a maximum hold of %v is believed in until %v", x.h.TTL/2, held.Deadline())
	}
	lost := held.Lost()
	w := x.waitBehind(held, b, x.long())
	lock := x.served(w, "after the maximum hold")
	x.alone(held, w)
	x.event(lost, "Lost closes at the end of the maximum hold")
	x.inTime(before, time.Since(before), x.longTTL()-x.h.TTL, "the lock came free with its lease and not with the maximum hold of %v", x.h.TTL/2)
	var reason *locker.LostError
	if !errors.As(held.Err(), &reason) || reason.Reason != locker.ReasonMaxHold {
		x.failf("a lock that ended with its maximum hold says %v", held.Err())
	}
	x.unlock(lock)
}

// longestHold takes a lock with the largest possible bound, which is as good as none.
func longestHold(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	held := x.lock(a, name, x.long(), locker.WithMaxHold(math.MaxInt64))
	if end := held.Deadline(); !end.After(time.Now()) {
		x.failf("a lock with a maximum hold of 292 years was believed in until %v", end)
	}
	x.taken(b, name, "while a lock with a maximum hold of 292 years is held")
	if err := held.Renew(x.patient()); err != nil {
		x.failf("a lock with a maximum hold of 292 years was not renewed: %w", err)
	}
	x.unlock(held)
	x.free(b, name, "after a lock with a maximum hold of 292 years")
}

// slowReply holds back the store's reply for a part of the TTL. The lease began when the
// request arrived.
func slowReply(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	x.unlock(x.lock(a.Locker, name, x.ttl())) // its connections are there, and what it keeps for a TTL
	a.CutReplies()
	var asked time.Time
	var lock *locker.Lock
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		asked = time.Now()
		lock, err = a.Locker.TryLock(x.patient(), name, x.ttl(), locker.WithoutRenewal())
	}()
	select {
	case <-time.After(x.h.TTL / 2): // this is how slow the reply is
	case <-done:
	}
	delivered := time.Now()
	a.Deliver()
	x.event(done, "TryLock returns when its reply arrives")
	if err == nil {
		// The request was sent between asked and delivered: on a slow machine, long
		// after asked.
		over := lock.Deadline().Sub(asked.Add(x.h.TTL))
		if over > 0 && !lock.Deadline().Before(delivered.Add(x.h.TTL-driver.Drift(x.h.TTL))) {
			x.failf("the reply came after %v, and the lock is believed in for %v longer than a TTL from the request", delivered.Sub(asked), over)
		}
	}
	next := x.lock(b, name)
	if err == nil && lock.Err() == nil {
		x.failf("another client was given the lock while its holder believed in it (until %v)", lock.Deadline())
	}
	x.unlock(next)
}

// longWait has another client wait for longer than the lease that it asks for. On a machine
// that stalls for a whole lease nothing may be left of it when the grant arrives. So, as in
// renewal, the wait is in vain only if it is so with each of three TTLs.
func longWait(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	var refused error
	for _, ttl := range []time.Duration{x.h.TTL, 3 * x.h.TTL, 9 * x.h.TTL} {
		held := x.lock(a, name, x.long())
		w := x.wait(x.patientFor(2*ttl), b, name, locker.WithTTL(ttl), locker.WithoutRenewal())
		x.waits(w, b, name)
		select {
		case <-time.After(ttl):
		case <-w.done: // unlock says that the lock was lost
		}
		x.unlock(held)
		x.returned(w, "after unlock")
		if refused = w.err; refused == nil {
			_ = w.lock.Unlock(x.ctx) // it may have ended
			return
		}
		if !errors.Is(refused, locker.ErrUnavailable) {
			break
		}
	}
	x.failf("the waiter was not served after a wait that was longer than its TTL: %w", refused)
}

// slowHandOver holds back the answer to a release that may hand the lock over to the next
// goroutine, which must not believe for longer than the store. A backend that does not
// hand over asks the store after the answer, and keeps the clause.
func slowHandOver(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	held := x.lock(a.Locker, name, x.long())
	w := x.wait(x.patient(), a.Locker, name, x.long())
	x.waits(w, nil, name)
	x.unlock(held)
	held = x.served(w, "after unlock") // the connections and scripts of a hand-over are there
	w = x.wait(x.patient(), a.Locker, name, x.ttl(), locker.WithoutRenewal())
	x.waits(w, nil, name)
	a.CutReplies()
	unlocked := make(chan struct{})
	go func() {
		defer close(unlocked)
		_ = held.Unlock(x.patient()) // any result is right
	}()
	select {
	case <-time.After(x.h.TTL / 2): // this is how slow the answer is
	case <-unlocked:
	}
	a.Deliver()
	x.event(unlocked, "Unlock returns when its answer arrives")
	x.returned(w, "after unlock")
	if w.err == nil { // else no validity was left after the answer
		x.takenInTime(x.takeFrom(w.lock, "that was handed over with a slow answer", b.TryLock))
	}
}

func minValidity(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	if lock, err := a.Locker.TryLock(x.patient(), name, x.ttl(), locker.WithMinValidity(x.h.TTL)); err == nil || lock != nil {
		x.failf("a minimum validity of the whole TTL cannot be met, and TryLock returned %s and error %v", had(lock), err)
	}
	x.free(b, name, "after an attempt with a minimum validity that cannot be met")
	wanted := x.longTTL() - driver.Drift(x.longTTL()) - x.h.TTL/2
	var lock *locker.Lock
	a.CutReplies()
	result, delivered := make(chan error, 1), make(chan time.Time, 1)
	go func() {
		var err error
		lock, err = a.Locker.TryLock(x.patient(), name, x.long(), locker.WithMinValidity(wanted))
		result <- err
	}()
	time.AfterFunc(x.h.TTL, func() { // this is how slow the reply is
		delivered <- time.Now()
		a.Deliver()
	})
	err := receive(x, x.h.patience, result, "TryLock returns after its reply was delivered")
	if err == nil && lock.Deadline().Before((<-delivered).Add(wanted)) {
		x.failf("TryLock succeeded with less validity left than WithMinValidity asks for")
	}
	if err == nil { // its session was renewed first
		x.unlock(lock)
	}
	if errors.Is(err, locker.ErrTaken) {
		x.failf("an answer that came too late was reported as %q, though nobody else has the lock", err)
	}
	x.freeBeforeLease(b, name, "after a lock was refused that came too late")
}

// freeBeforeLease requires that the name comes free long before the end of a long lease
// that was left in the store.
func (x *trial) freeBeforeLease(l locker.Locker, name, when string) {
	x.unlock(x.lockBeforeLease(l, name, when))
}

func (x *trial) lockBeforeLease(l locker.Locker, name, when string) *locker.Lock {
	lock, err := x.lockSlowly(x.within(min(x.longTTL()*6/10, x.h.patience)), l, name, x.long())
	if err != nil {
		x.failf("the name has not come free %s: %w", when, err)
	}
	return lock
}
