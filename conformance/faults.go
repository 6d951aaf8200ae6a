package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
)

var faultClauses = []Clause{
	{"lost-reply", "An attempt whose reply is lost must not leave a lock that nobody holds.", lostReply},
	{"own-grant", "An attempt that is sent again because its connection broke finds its own lock, and must not take it for somebody else's.", ownGrant},
	{"lost-reply-while-waiting", "A waiter that gives up on a silent store must not be given the lock afterwards.", lostReplyWhileWaiting},
	{"lost-grant", "A waiter that did not hear of its grant must not believe for longer than the store keeps the lock.", lostGrant},
	{"break-unheard", "A waiter that did not hear of its grant, which was then broken, must be served like any other.", breakUnheard},
	{"dead-while-locking", "A process that dies between two requests must not leave a lock for ever: its first must carry the expiry.", deadWhileLocking},
	{"late-delivery", "A request may arrive after its caller has given up and cleaned up: no lock may come of it.", lateDelivery},
	{"late-after-clean-up", "A clean-up that overtakes the request it is for removes nothing, and then the request makes a lock.", lateAfterCleanUp},
	{"late-after-taken", "An answer of \"taken\" says nothing of an earlier request that is still on its way: it must find itself refused.", lateAfterTaken},
	{"late-after-unlock", "A release must refuse earlier requests of its own attempt: one that arrives later makes a lock that nobody holds.", lateAfterUnlock},
	{"silent-store", "A caller that sets a deadline must get an answer by then, also when the store says nothing, and be told no more than is known.", silentStore},
	{"silent-for-long", "\"Taken\" is no knowledge when the store has been silent since: the holder may be long gone.", silentForLong},
	{"silent-names", "A program that locks many names must not learn of each one anew, and later and later, that the store is silent.", silentNames},
	{"cut-while-waiting", "A waiter whose connection breaks must queue again or fail, and never hang.", cutWhileWaiting},
}

func lostReply(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	x.unlock(x.lock(a.Locker, name)) // its connections are there
	err := x.tryUnheard(a, name)
	x.freedAfter(err, b, name, "after an attempt whose reply was lost")
}

// tryUnheard makes an attempt whose reply is lost, and returns its error.
func (x *trial) tryUnheard(a Process, name string, kind ...locker.Option) error {
	a.CutReplies()
	lock, err := a.Locker.TryLock(x.within(x.h.TTL/4), name, append(kind, x.long())...)
	if err == nil || lock != nil {
		x.failf("TryLock returned %s and error %v, though no reply had arrived", had(lock), err)
	}
	a.Heal()
	return err
}

// freedAfter requires that a failed attempt leaves nothing in the store. If its error is
// ErrOutcomeUnknown, something may stay for a TTL.
func (x *trial) freedAfter(err error, l locker.Locker, name, when string) {
	if errors.Is(err, locker.ErrOutcomeUnknown) {
		lock, err := l.Lock(x.patientFor(x.longTTL()), name, x.long())
		if err != nil {
			x.failf("the name has not come free within a TTL %s with ErrOutcomeUnknown: %w", when, err)
		}
		x.unlock(lock)
		return
	}
	x.freeBeforeLease(l, name, when)
}

// ownGrant breaks the connection of an attempt when the store has granted it. Whoever sends
// it again meets a lock, which is its own.
func ownGrant(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	i := x.inspector(b)
	x.unlock(x.lock(a.Locker, name)) // its connections are there
	a.CutReplies()
	ctx, done := x.patient(), make(chan struct{})
	var lock *locker.Lock
	var err error
	go func() {
		defer close(done)
		lock, err = a.Locker.TryLock(ctx, name, x.long())
	}()
	x.eventually("the store grants an attempt, or its caller hears that it does not answer", func() bool {
		select {
		case <-done:
			return true
		default:
			return x.inspect(i, name).Held
		}
	})
	a.Heal()
	x.event(done, "TryLock returns after its connection broke")
	switch {
	case errors.Is(err, locker.ErrTaken):
		x.failf("TryLock of a name that nobody else has asked for, whose connection broke: %w", err)
	case err != nil:
		x.freedAfter(err, b, name, "after an attempt whose connection broke")
	default:
		x.taken(b, name, "of a name that an attempt got whose connection broke")
		x.unlock(lock)
	}
}

// deadWhileLocking cuts a process off for good in the middle of its attempt: nobody cleans
// up.
func deadWhileLocking(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	x.unlock(x.lock(a.Locker, name)) // its connections are there
	a.CutReplies()
	if _, err := a.Locker.TryLock(x.within(x.h.TTL/4), name, x.ttl()); err == nil {
		x.failf("TryLock succeeded, though no reply had arrived")
	}
	a.Cut()
	lock, err := b.Lock(x.patientFor(x.h.TTL), name)
	if err != nil {
		x.failf("the name has not come free, though the TTL is long over of the attempt that was cut off: %w", err)
	}
	x.unlock(lock)
}

func lostReplyWhileWaiting(x *trial) {
	a, b, c, name := x.networked(), x.locker(), x.locker(), x.name()
	held := x.lock(b, name)
	ctx, cancel := context.WithCancel(x.patient())
	w := x.wait(ctx, a.Locker, name, x.long())
	x.waits(w, b, name)
	a.CutReplies()
	x.unlock(held) // the waiter's turn comes, and it cannot know
	cancel()
	x.returned(w, "when its context ends")
	if w.err == nil {
		x.unlock(w.lock) // it heard of its turn before the cut: this shows nothing
	}
	a.Heal()
	x.freedAfter(w.err, c, name, "after a waiter gave up whose turn had come unheard")
}

// lostGrant loses the reply that grants a waiter the lock, and has it ask again. By then
// the store has started the lease. Where waiters are notified, it loses the notification
// in the first round, and the reply in the second.
func lostGrant(x *trial) {
	a, b := x.networked(), x.locker()
	for _, cut := range []func(){a.CutReplies, a.CutRepliesAfterOne} {
		held := x.lock(b, x.name())
		w := x.waitBehind(held, a.Locker, x.ttl(), locker.WithoutRenewal())
		x.waits(w, b, held.Name())
		cut()
		x.unlock(held)
		<-time.After(x.h.TTL / 2)
		if w.back() { // one reply was all that it needed; where its lock ends with its connection, that is not to break
			a.Deliver()
		} else {
			a.Heal()
		}
		x.returned(w, "after its connections broke")
		if w.err != nil { // cut-while-waiting checks which error
			x.freedAfter(w.err, b, held.Name(), "after a waiter's connections broke")
			continue
		}
		next := x.waitBehind(w.lock, b)
		x.unlock(x.served(next, "after the end of a lease that nobody renews"))
		x.alone(w.lock, next)
	}
}

// breakUnheard breaks a lock that was granted to a waiter, which has not heard of the
// grant and asks again.
func breakUnheard(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	breaker := x.breaker(b)
	held, w := x.waitsForTheEnd(name, b, a.Locker)
	a.CutReplies()
	x.event(held.Lost(), "a lock that nobody renews is lost")
	// The waiter asks again by itself. Each grant that it gets meanwhile is broken.
	for end := time.Now().Add(x.h.TTL); time.Now().Before(end); {
		if _, err := breaker.Break(x.patient(), name); err != nil {
			x.failf("Break: %w", err)
		}
		<-time.After(x.h.TTL / 20)
	}
	a.Heal()
	x.returned(w, "after its connections broke")
	switch {
	case errors.Is(w.err, locker.ErrTaken):
		x.failf("a waiter whose grant was broken went on waiting for a name that was free: %w", w.err)
	case w.err != nil: // cut-while-waiting checks which error
		x.freedAfter(w.err, b, name, "after a waiter's connections broke")
		return
	}
	if err := w.lock.Err(); err != nil {
		x.failf("a waiter was given a lock that had been broken: %w", err)
	}
	x.taken(b, name, "of a name that a waiter was given after a break")
	x.unlock(w.lock)
}

// waitsForTheEnd returns a lock that nobody renews, and who waits for its end. A machine that
// stalls is given a longer TTL.
func (x *trial) waitsForTheEnd(name string, a, b locker.Locker) (*locker.Lock, *waiter) {
	for _, ttl := range []time.Duration{x.h.TTL, 3 * x.h.TTL, 9 * x.h.TTL} {
		held := x.lock(a, name, locker.WithTTL(ttl), locker.WithoutRenewal())
		w := x.waitBehind(held, b, x.long())
		if x.seenWaiting(w, a, name) {
			return held, w
		}
		x.unlock(x.served(w, "after the end of a lease that nobody renews"))
	}
	x.failf("a lock that nobody renews had ended before somebody waited for it, each time")
	return nil, nil
}

// lateDelivery gives up on a request, which then arrives. Meanwhile another client locks
// and unlocks, and never finds a lock that was left.
func lateDelivery(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	x.unlock(x.lock(a.Locker, name)) // its connections are there
	a.Cut()
	lock, err := a.Locker.TryLock(x.within(x.h.TTL/4), name, x.long())
	if err == nil || lock != nil {
		x.failf("TryLock returned %s and error %v, though nothing had passed", had(lock), err)
	}
	a.Deliver()
	for end := time.Now().Add(x.h.TTL); time.Now().Before(end); {
		x.freedAfter(err, b, name, "after an attempt that was delivered late")
	}
}

// lateAfterCleanUp has the clean-up overtake its request, over a new connection.
func lateAfterCleanUp(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	x.unlock(x.lock(a.Locker, name)) // its connections are there
	a.Stall()
	lock, err := a.Locker.TryLock(x.within(x.h.TTL/4), name, x.long())
	if err == nil { // over a new connection
		x.unlock(lock)
	}
	if errors.Is(err, locker.ErrOutcomeUnknown) {
		<-time.After(x.h.TTL) // the clean-up goes on behind the caller's back
	}
	a.Deliver()
	for end := time.Now().Add(x.h.TTL); time.Now().Before(end); {
		x.freedAfter(err, b, name, "after an attempt that was delivered later than its clean-up")
	}
}

// lateAfterTaken has the connections of waiters fall silent while they ask. They hear over new ones that the lock is
// taken, and give up. Then the locks are given back, and what was held back arrives. There are several, for one that is
// just asking when it gives up withdraws in any case.
func lateAfterTaken(x *trial) {
	a, b := x.networked(), x.locker()
	var held []*locker.Lock
	var ws []*waiter
	ctx, cancel := context.WithCancelCause(x.ctx)
	for range 4 {
		lock := x.lock(b, x.name(), x.long())
		w := x.waitTold(ctx, a.Locker, b, lock.Name(), x.long())
		held, ws = append(held, lock), append(ws, w)
	}
	a.Stall()
	<-time.After(3 * x.h.TTL) // they ask again by then, if they give up on a request at all
	cancel(context.Canceled)
	for _, w := range ws {
		if x.returned(w, "after its context was cancelled"); w.err == nil {
			x.failf("a waiter was served while another client held the lock")
		}
	}
	<-time.After(x.h.TTL / 2) // a clean-up may go on behind the callers' backs
	for _, lock := range held {
		x.unlock(lock)
	}
	a.Deliver()
	<-time.After(x.h.TTL / 2) // nobody else has the lock when it arrives
	for i, w := range ws {
		x.freedAfter(w.err, b, held[i].Name(), "after a waiter that had been told that the lock is taken, one of whose requests arrived later")
	}
}

func lateAfterUnlock(x *trial) {
	x.lateAfter(x.networked(), x.locker(), "given back", x.unlock)
}

// lateAfter has the connections of a waiter fall silent just before its turn. It gets the lock over new ones, if it
// notices, and gives it back in some way. Then what was held back arrives.
func (x *trial) lateAfter(a Process, b locker.Locker, how string, giveBack func(*locker.Lock)) {
	name := x.name()
	held := x.lock(b, name, x.long())
	w := x.waitTold(x.patient(), a.Locker, b, name, x.long())
	a.Stall()
	<-time.After(x.h.TTL / 10) // it may ask, and is not heard
	x.unlock(held)
	select {
	case <-w.done: // over a new connection
	case <-time.After(5 * x.h.TTL):
		a.Deliver() // it waits over the connection that it has
	}
	giveBack(x.served(w, "after unlock"))
	a.Deliver()
	<-time.After(x.h.TTL / 2) // nobody else has the lock when it arrives
	x.freedAfter(nil, b, name, "after a lock that was "+how+", one of whose requests arrived later")
}

// silentStore has calls end while the store says nothing: of a client that has never asked
// it, of one that has, and of one that has waited, and so may listen to the store. A waiter
// that was told "taken" waits on, and says so.
func silentStore(x *trial) {
	never, asked, waited, b := x.networked(), x.networked(), x.networked(), x.locker()
	x.unlock(x.lock(asked.Locker, x.name()))
	held := x.lock(b, x.name(), x.long())
	w := x.wait(x.patient(), waited.Locker, held.Name(), x.long())
	x.waits(w, b, held.Name())
	x.unlock(held)
	x.unlock(x.served(w, "after unlock"))

	held = x.lock(b, x.name(), x.long())
	ctx, cancel := context.WithCancelCause(x.ctx)
	told := x.waitTold(ctx, waited.Locker, b, held.Name(), x.long())
	x.taken(waited.Locker, held.Name(), "of a name that another client has and a goroutine waits for")
	var calls []func()
	for what, a := range map[string]Process{"that has never asked it": never, "that has asked it": asked, "that has waited": waited} {
		a.Cut()
		for verb, call := range map[string]asking{"Lock": a.Locker.Lock, "TryLock": a.Locker.TryLock} {
			for _, end := range x.endings() {
				calls = append(calls, func() { x.endsUnheard(verb+" of a client "+what, call, end) })
			}
		}
	}
	x.atOnce(calls)
	if told.back() {
		x.failf("a waiter that was told that the lock is taken did not wait for its context to end: %w", told.err)
	}
	why := errors.New("the caller's own reason")
	cancel(why)
	x.returned(told, "though the store is silent, when its context ends")
	if !errors.Is(told.err, locker.ErrTaken) || !errors.Is(told.err, why) {
		x.failf("a waiter that was told that the lock is taken, by a store that is silent now, returned %w, want ErrTaken and the cause %q", told.err, why)
	}
}

// endsUnheard requires that a call of a silent store ends with its context, says why, and
// does not say that it knows anything.
func (x *trial) endsUnheard(what string, call asking, end ending) {
	ctx, begun := end.begin(x.h.TTL/4), time.Now()
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.late = ctx.Err() != nil
		w.lock, w.err = call(ctx, x.name(), x.long())
	}()
	x.returned(w, "though the store is silent, when the context of "+what+" ends")
	switch {
	case w.err == nil || w.lock != nil:
		x.failf("%s returned %s and error %v though the store is silent", what, had(w.lock), w.err)
	case errors.Is(w.err, locker.ErrTaken) && !errors.Is(end.cause, locker.ErrTaken):
		x.failf("%s says that the lock is taken, which the silent store has told nobody: %w", what, w.err)
	case !errors.Is(w.err, locker.ErrUnavailable) && !w.late:
		x.failf("%s: got %w of a silent store, want ErrUnavailable", what, w.err)
	case !errors.Is(w.err, end.cause):
		x.failf("%s: got %w of a silent store, want the cause %q", what, w.err, end.cause)
	}
	x.inTime(begun, time.Since(begun), x.longTTL()*6/10, "%s, whose context ended after %v, waited for the network, not for its caller", what, x.h.TTL/4)
}

// silentForLong has a client wait for a lock while the store falls silent. Its later calls must
// not be told for ever what the waiter was told once. A lock that only the end of a connection
// frees is not checked: its waiter waits in the server, and hears of a silent one only when the
// system gives the connection up, which may take longer than a clause.
func silentForLong(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	if a.Locker.Guarantees().FreedBy == locker.FreedByConnection {
		x.skip("wait that the client bounds (its server keeps the waiters)")
	}
	held := x.lock(b, name, x.ttl())
	ctx, cancel := context.WithCancel(x.ctx)
	w := x.waitTold(ctx, a.Locker, b, name, x.ttl())
	a.Cut()
	for verb, call := range map[string]asking{"Lock": a.Locker.Lock, "TryLock": a.Locker.TryLock} {
		x.eventually(verb+" of a client whose waiter was told \"taken\", by a store that has long been silent, returns ErrUnavailable", func() bool {
			lock, err := call(x.within(x.h.TTL/4), name, x.ttl())
			if err == nil || lock != nil {
				x.failf("%s returned %s and error %v though the store is silent", verb, had(lock), err)
			}
			return errors.Is(err, locker.ErrUnavailable) && !errors.Is(err, locker.ErrTaken)
		})
	}
	cancel()
	x.returned(w, "though the store is silent, when its context ends")
	a.Heal()
	if w.err == nil {
		x.unlock(w.lock)
	}
	if err := held.Unlock(x.patient()); err != nil && !errors.Is(err, locker.ErrLost) { // other clauses ask whether it was renewed
		x.failf("Unlock: %w", err)
	}
}

// silentNames has a client ask a silent store for several names at once, before it has
// asked for anything else. If each call waited for the one before it to fail, the last
// would come back long after the first, and a call with little time behind one with much.
func silentNames(x *trial) {
	const names = 4 // so few that with the hasty ones they are two rounds at most for a pool of four connections
	a, soon, slack := x.networked(), x.h.TTL/4, x.h.patience/6
	a.Cut()
	begun := time.Now()
	patient, hasty := x.unheard(x.patient(), a.Locker, names), x.unheard(x.within(soon), a.Locker, names/2)
	took := x.times(hasty)
	x.inTime(begun, took[len(took)-1], soon+slack, "of %d calls for different names that had %v, the last waited for others, which have more time", len(took), soon)
	took = x.times(patient)
	x.inTime(begun, took[len(took)-1], 2*took[0]+slack, "of %d calls for different names, the first heard after %v that the store is silent, and the last waited for the others", len(took), took[0])
}

// unheard tries to lock so many names of a silent store, all at once, and tells how long each
// call took.
func (x *trial) unheard(ctx context.Context, l locker.Locker, names int) <-chan time.Duration {
	begun, took := time.Now(), make(chan time.Duration, names)
	for range names {
		go func() {
			if lock, err := l.TryLock(ctx, x.name(), x.long()); err == nil {
				_ = lock.Unlock(x.ctx) // the store was not silent: this shows nothing
			}
			took <- time.Since(begun)
		}()
	}
	return took
}

// times waits for all that unheard tells, and returns it in order.
func (x *trial) times(took <-chan time.Duration) []time.Duration {
	all := make([]time.Duration, cap(took))
	for i := range all {
		all[i] = receive(x, 2*x.h.patience, took, "TryLock of a silent store returns after its context ended")
	}
	return all
}

func cutWhileWaiting(x *trial) {
	a, b, name := x.networked(), x.locker(), x.name()
	held := x.lock(b, name, x.long())
	w := x.wait(x.patient(), a.Locker, name, x.long())
	x.waits(w, b, name)
	a.Cut()
	x.unlock(held)
	a.Heal()
	x.returned(w, "after its connections broke")
	switch {
	case w.err == nil:
		x.unlock(w.lock)
	case errors.Is(w.err, context.DeadlineExceeded):
		x.failf("a waiter whose connections broke waited until its context ended, though the lock was free: %w", w.err)
	}
	x.freedAfter(w.err, b, name, "after a waiter's connections broke")
}
