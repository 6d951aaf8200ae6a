package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

var sharedClauses = []Clause{
	{"shared", "Readers must hold a lock at the same time, and a writer must be alone, or the option is of no use.", sharedByMany},
	{"shared-crowd", "Among readers and writers of many processes, nobody may come between a writer and its work, nor starve, nor be refused by a guard while it holds the lock.", sharedCrowd},
	{"shared-at-once", "Of readers who try at the same time none may be told that the lock is taken.", sharedAtOnce},
	{"shared-tokens", "A guard tells readers from earlier and later writers by their numbers, which must be in the order of grants.", sharedTokens},
	{"shared-writer", "A writer that waits must keep later readers out, or a stream of readers locks it out for ever.", sharedWriter},
	{"shared-together", "Readers that waited for the same writer must be let in together, and not one when the other has left.", sharedTogether},
	{"shared-told", "The last reader's release must wake a writer that waits, and a writer's release must wake readers.", sharedTold},
	{"shared-ttls", "A reader with a short lease must not end that of one with a long lease, nor be kept alive by it.", sharedTTLs},
	{"shared-renewal", "Each reader's lease must be renewed, also where one process has several of a name.", sharedRenewal},
	{"shared-release", "A reader's release must free its own share, and nothing that others hold.", sharedRelease},
	{"shared-dead", "A reader that dies must not free what other readers hold, nor keep a writer out for longer than its lease.", sharedDead},
	{"shared-dead-writer", "A writer that dies or gives up while it waits must not keep readers out for ever.", sharedDeadWriter},
	{"shared-lost-reply", "A reader's attempt whose reply is lost must not leave a share that nobody holds.", sharedLostReply},
	{"shared-break", "Whoever breaks one reader's share must not take the others'.", sharedBreak},
}

var reading = locker.WithShared()

// sharing starts one more process, and skips the clause unless the backend has shared locks.
func (x *trial) sharing() locker.Locker {
	l := x.locker()
	if !l.Guarantees().Shared {
		x.skip("shared lock (Guarantees.Shared)")
	}
	return l
}

// soonTaken requires that TryLock with opts finds the name taken, now or soon.
func (x *trial) soonTaken(l locker.Locker, name, what string, opts ...locker.Option) {
	x.eventually(what, func() bool {
		lock, err := l.TryLock(x.patient(), name, opts...)
		if err == nil {
			x.unlock(lock)
		} else if !errors.Is(err, locker.ErrTaken) {
			x.failf("TryLock: %w", err)
		}
		return err != nil
	})
}

func sharedByMany(x *trial) {
	a, b, c, name := x.sharing(), x.locker(), x.locker(), x.name()
	first, second := x.lock(a, name, reading, x.long()), x.lock(b, name, reading, x.long())
	third, err := b.TryLock(x.patient(), name, reading)
	if err != nil {
		x.failf("TryLock by a reader beside others: %w", err)
	}
	for _, lock := range []*locker.Lock{first, second, third} {
		if lock.Token() != 0 || lock.SharedToken() == 0 || lock.Slot() != -1 || lock.Err() != nil {
			x.failf("a shared lock has token %d, number %d, slot %d, error %v", lock.Token(), lock.SharedToken(), lock.Slot(), lock.Err())
		}
	}
	x.taken(c, name, "by a writer beside readers")
	x.taken(a, name, "by a writer beside readers of its own process")
	x.unlock(first)
	x.unlock(second)
	x.taken(c, name, "by a writer beside the last reader")
	x.unlock(third)
	writer := x.tryLock(c, name, "after the last reader")
	if writer.Token() == 0 || writer.SharedToken() != 0 || writer.Slot() != -1 {
		x.failf("an exclusive lock has token %d, number %d, slot %d", writer.Token(), writer.SharedToken(), writer.Slot())
	}
	for what, l := range map[string]locker.Locker{"another process": a, "the writer's own process": c} {
		if lock, err := l.TryLock(x.patient(), name, reading); !errors.Is(err, locker.ErrTaken) {
			x.failf("TryLock by a reader of %s beside a writer returned %s and error %v, want ErrTaken", what, had(lock), err)
		}
	}
	x.unlock(writer)
	x.free(a, name, "after a writer")
}

func sharedAtOnce(x *trial) { x.roomForAll(x.sharing(), reading) }

// triesAtOnce is how many processes try at the same time where there is room for all.
const triesAtOnce = 12

func (x *trial) roomForAll(l locker.Locker, opt locker.Option) {
	name, ls := x.name(), append(x.lockers(triesAtOnce-1), l)
	for range 2 { // the name is new, and then it is not
		var calls []func()
		locks := make([]*locker.Lock, len(ls))
		for k, l := range ls {
			calls = append(calls, func() {
				var err error
				if locks[k], err = l.TryLock(x.patient(), name, opt, x.long()); err != nil {
					x.failf("TryLock where there is room for all who try: %w", err)
				}
			})
		}
		x.atOnce(calls)
		for _, lock := range locks {
			x.unlock(lock)
		}
	}
}

// readersWriters is what readers and writers do under the lock.
type readersWriters struct {
	readers, writers atomic.Int32
	guard            fencing.Memory
}

func (c *readersWriters) read(x *trial, l locker.Locker, name string) error {
	lock, err := x.lockSlowly(x.patient(), l, name, reading)
	if err != nil {
		return err
	}
	c.readers.Add(1)
	err = c.guard.CheckShared(x.ctx, name, lock.SharedToken())
	if n := c.writers.Load(); n != 0 {
		err = errors.Join(err, errors.New("a reader beside a writer"))
	}
	time.Sleep(100 * time.Microsecond)
	err = errors.Join(err, c.guard.CheckShared(x.ctx, name, lock.SharedToken()))
	c.readers.Add(-1)
	return errors.Join(err, x.unlockInACrowd(lock))
}

func (c *readersWriters) write(x *trial, l locker.Locker, name string) error {
	lock, err := x.lockSlowly(x.patient(), l, name)
	if err != nil {
		return err
	}
	if n := c.writers.Add(1); n != 1 {
		err = errors.New("two writers")
	}
	err = errors.Join(err, c.guard.Check(x.ctx, name, lock.Token()))
	if n := c.readers.Load(); n != 0 {
		err = errors.Join(err, fmt.Errorf("a writer beside %d readers", n))
	}
	time.Sleep(100 * time.Microsecond)
	err = errors.Join(err, c.guard.Check(x.ctx, name, lock.Token()))
	c.writers.Add(-1)
	return errors.Join(err, x.unlockInACrowd(lock))
}

func sharedCrowd(x *trial) {
	const goroutines, rounds = 4, 8
	var work readersWriters
	name := x.name()
	var k atomic.Int32
	x.each(append(x.lockers(2), x.sharing()), goroutines, func(l locker.Locker) {
		do := work.read
		if k.Add(1)%goroutines == 0 {
			do = work.write
		}
		for range rounds {
			if err := do(x, l, name); err != nil {
				x.failf("%w", err)
			}
		}
	})
}

// sharedTokens has readers between writers. The last round's reader ends with its lease.
func sharedTokens(x *trial) {
	a, b, name := x.sharing(), x.locker(), x.name()
	last := uint64(0)
	next := func(number uint64, who string) {
		if number <= last {
			x.failf("%s was granted number %d after %d", who, number, last)
		}
		last = number
	}
	for range 3 {
		writer := x.lock(a, name)
		next(uint64(writer.Token()), "a writer")
		x.unlock(writer)
		first, second := x.lock(a, name, reading, x.long()), x.lock(b, name, reading, x.ttl(), locker.WithoutRenewal())
		next(uint64(first.SharedToken()), "a reader")
		next(uint64(second.SharedToken()), "a reader of another process")
		x.unlock(first)
		x.event(second.Lost(), "a reader's lease ends")
	}
	next(uint64(x.lock(b, name).Token()), "the last writer")
}

// sharedWriter has a writer wait for a reader. Readers come after it, in all processes.
func sharedWriter(x *trial) {
	a, b, c, name := x.sharing(), x.locker(), x.locker(), x.name()
	reader := x.lock(a, name, reading, x.long())
	writer := x.wait(x.patient(), b, name, x.long())
	x.waits(writer, c, name)
	x.soonTaken(c, name, "a writer that waits keeps readers of a third process out", reading)
	x.soonTaken(a, name, "a writer that waits keeps readers out where others read already", reading, x.long())
	late := x.wait(x.patient(), c, name, reading)
	x.unlock(reader)
	lock := x.served(writer, "after the last reader")
	if late.back() {
		x.failf("a reader that came after a writer that waited was served beside it or before it (error %v)", late.err)
	}
	x.unlock(lock)
	x.unlock(x.served(late, "after the writer"))
	x.free(a, name, "after all")
}

func sharedTogether(x *trial) {
	a, ls, name := x.sharing(), x.lockers(4), x.name()
	writer := x.lock(a, name, x.long())
	var readers []*waiter
	for _, l := range ls {
		w := x.wait(x.patient(), l, name, reading, x.long())
		x.waits(w, a, name)
		readers = append(readers, w)
	}
	if i, ok := x.inspects(a); ok && a.Guarantees().Fair {
		x.queuedAtLeast(i, name, len(ls))
	}
	x.unlock(writer)
	for _, w := range readers { // none of them unlocks before the last is served
		x.served(w, "together with other readers, after the writer")
	}
	for _, w := range readers {
		x.unlock(w.lock)
	}
	x.free(a, name, "after all readers")
}

// sharedTold has long leases: nobody may sleep until one ends.
func sharedTold(x *trial) {
	a, b, c, name := x.sharing(), x.locker(), x.locker(), x.name()
	first, second := x.lock(a, name, reading, x.long()), x.lock(b, name, reading, x.long())
	began := time.Now()
	writer := x.wait(x.patient(), c, name, x.long())
	x.waits(writer, a, name)
	x.unlock(first)
	x.unlock(second)
	lock := x.served(writer, "after the last reader")
	reader := x.wait(x.patient(), a, name, reading, x.long())
	x.waits(reader, a, name)
	x.unlock(lock)
	x.unlock(x.served(reader, "after the writer"))
	x.inTime(began, time.Since(began), x.longTTL()*9/10, "waiters slept until the end of a lease of %v", x.longTTL())
}

// sharedTTLs has two readers, one with a short lease. A writer waits: first for the one
// with the long lease, which outlives the short one; then for the short one, when the other
// has unlocked.
func sharedTTLs(x *trial) {
	for _, longFirst := range []bool{true, false} {
		a, b, c, name := x.sharing(), x.locker(), x.locker(), x.name()
		ttls := []time.Duration{2 * x.h.TTL, x.h.TTL}
		if !longFirst {
			ttls = []time.Duration{x.h.TTL, 2 * x.h.TTL}
		}
		first := x.lock(a, name, reading, locker.WithTTL(ttls[0]), locker.WithoutRenewal())
		second := x.lock(b, name, reading, locker.WithTTL(ttls[1]), locker.WithoutRenewal())
		outlives := first
		if !longFirst {
			outlives = second
		}
		w := x.waitBehindWithin(x.patientFor(2*x.h.TTL), outlives, c)
		x.unlock(x.served(w, "after the end of the readers' leases"))
		x.alone(outlives, w)

		name = x.name()
		short := x.lock(b, name, reading, x.ttl(), locker.WithoutRenewal())
		long := x.lock(a, name, reading, x.long())
		end := short.Lost()
		x.unlock(long)
		w = x.waitBehindWithin(x.patientFor(x.longTTL()), short, c)
		x.event(end, "a reader's lease ends")
		began := time.Now()
		x.unlock(x.served(w, "after the end of a reader's lease"))
		x.alone(short, w)
		x.inTime(began, time.Since(began), x.longTTL()/2, "a reader with a TTL of %v kept a writer out, after one with a TTL of %v had been there", x.h.TTL, x.longTTL())
	}
}

// sharedRenewal holds two shares of one process, and one of another.
func sharedRenewal(x *trial) {
	a, b, c := x.sharing(), x.locker(), x.locker()
	x.renewedTogether(c, nil, func(name string, ttl locker.Option) (readers []*locker.Lock) {
		for _, l := range []locker.Locker{a, a, b} {
			readers = append(readers, x.lock(l, name, reading, ttl, locker.WithHolder(fmt.Sprint(len(readers)))))
		}
		return readers
	})
}

// renewedTogether has locks held for several TTLs, while rival waits for one that they exclude. As in
// renewal, a machine that stalls is given a longer TTL.
func (x *trial) renewedTogether(rival locker.Locker, kind []locker.Option, hold func(name string, ttl locker.Option) []*locker.Lock) {
	var held []*locker.Lock
	var lost error
	for _, ttl := range []time.Duration{x.h.TTL, 3 * x.h.TTL, 9 * x.h.TTL} {
		name := x.name()
		held = hold(name, locker.WithTTL(ttl))
		w := x.wait(x.patientFor(4*ttl), rival, name, kind...)
		select {
		case <-w.done:
		case <-time.After(5 * ttl / 2):
		}
		lost = nil
		for _, lock := range held {
			lost = errors.Join(lost, lock.Err())
		}
		if lost == nil && w.back() {
			x.failf("a waiter was served (error %v) while %d holders that exclude it believed", w.err, len(held))
		}
		lost = x.unlockAll(lost, held)
		x.unlock(x.served(w, "after the others"))
		if lost == nil {
			return
		}
	}
	if !x.notRenewed(held...) {
		x.failf("locks that are to be renewed were lost each time: %w", lost)
	}
}

func sharedRelease(x *trial) {
	a, b, c, name := x.sharing(), x.locker(), x.locker(), x.name()
	stays := x.lock(a, name, reading, x.long())
	sibling := x.lock(a, name, reading, x.long(), locker.WithHolder("another lease of the same process"))
	other := x.lock(b, name, reading, x.long())
	x.unlock(sibling)
	x.unlock(other)
	_ = other.Unlock(x.ctx)
	x.taken(c, name, "by a writer, after two of three readers have left")
	if err := stays.Renew(x.patient()); err != nil {
		x.failf("a reader was lost when others left: %w", err)
	}
	x.unlock(stays)
	x.free(c, name, "after the last reader")
}

func sharedDead(x *trial) {
	b, dead, c, name := x.sharing(), x.networked(), x.locker(), x.name()
	gone := x.lock(dead.Locker, name, reading, x.ttl())
	stays := x.lock(b, name, reading, x.long())
	lost := gone.Lost()
	w := x.waitBehindWithin(x.patientFor(x.h.TTL), gone, c)
	x.waits(w, b, name)
	dead.Cut()
	x.event(lost, "a reader that is cut off stops believing")
	<-time.After(x.h.TTL / 2) // the store has ended its lease, too
	if err := stays.Renew(x.patient()); err != nil {
		x.failf("a reader was lost when another died: %w", err)
	}
	if w.back() {
		x.failf("a writer was served (error %v) beside a reader, after another reader had died", w.err)
	}
	x.unlock(stays)
	x.unlock(x.served(w, "after the last reader that lives"))
	x.alone(gone, w)
}

// sharedDeadWriter has a writer wait behind a reader that goes on reading. First it gives
// up, then it is cut off.
func sharedDeadWriter(x *trial) {
	a, b, c, name := x.sharing(), x.locker(), x.locker(), x.name()
	reader := x.lock(a, name, reading, x.long())
	ctx, cancel := context.WithCancel(x.patient())
	writer := x.wait(ctx, b, name, x.ttl())
	x.waits(writer, a, name)
	late := x.wait(x.patient(), c, name, reading, x.long())
	cancel()
	x.returned(writer, "when its context ends")
	x.unlock(x.served(late, "after the writer before it has given up"))
	if err := reader.Err(); err != nil {
		x.failf("a reader was lost to a writer that gave up: %w", err)
	}
	dead := x.networked()
	writer = x.wait(x.patient(), dead.Locker, name, x.ttl())
	x.waits(writer, a, name)
	dead.Cut()
	late = x.wait(x.patientFor(2*x.h.TTL), c, name, reading, x.long())
	x.unlock(x.served(late, "after the writer before it has died"))
	x.unlock(reader)
	dead.Heal()
}

func sharedLostReply(x *trial) {
	b, a, name := x.sharing(), x.networked(), x.name()
	x.unlock(x.lock(a.Locker, name, reading)) // its connections are there
	stays := x.lock(b, name, reading, x.long())
	err := x.tryUnheard(a, name, reading)
	if err := stays.Renew(x.patient()); err != nil {
		x.failf("a reader was lost to another's attempt: %w", err)
	}
	x.unlock(stays)
	x.freedAfter(err, b, name, "after a reader's attempt whose reply was lost")
}

// sharedBreak also looks at what Inspect shows.
func sharedBreak(x *trial) {
	a, b, c, name := x.sharing(), x.locker(), x.locker(), x.name()
	breaker, i := x.breaker(c), x.inspector(c)
	stays := x.lock(a, name, reading, x.long(), locker.WithHolder("the first"))
	goes := x.lock(b, name, reading, x.long(), locker.WithHolder("the second"))
	ended := goes.Lost()
	info := x.inspect(i, name)
	if !info.Held || info.Kind != locker.KindShared || len(info.Holders) != 2 ||
		info.Holders[0].Text != "the first" || info.Holders[0].Number != locker.Number(stays.SharedToken()) ||
		info.Holders[1].Text != "the second" || info.Holders[1].Slot != -1 {
		x.failf("a lock that two readers hold, with numbers %d and %d, is shown as %+v", stays.SharedToken(), goes.SharedToken(), info)
	}
	x.breakOnly(breaker, name, "one reader's share", locker.Number(goes.SharedToken()))
	if err := goes.Renew(x.patient()); !errors.Is(err, locker.ErrLost) {
		x.failf("Renew by a reader whose share was broken returned %v, want ErrLost", err)
	}
	x.event(ended, "a reader learns that its share was broken")
	if err := stays.Renew(x.patient()); err != nil {
		x.failf("a reader was lost when another's share was broken: %w", err)
	}
	x.settles("Break finds no share that was broken", func() bool { // a server may still be about to end its connection
		ok, err := askSlowly(x.patient(), x, func() (bool, error) { return breaker.BreakHolder(x.patient(), name, locker.Number(goes.SharedToken())) })
		if err != nil {
			x.failf("Break of a share that is not there: %w", err)
		}
		return !ok
	})
	x.taken(c, name, "by a writer beside the reader whose share was not broken")
	x.breakNow(breaker, name, "all")
	x.freeBeforeLease(c, name, "after all readers' shares were broken")
}
