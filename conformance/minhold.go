package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker"
)

var minHoldClauses = []Clause{
	{"min-hold", "A lock that was unlocked within its minimum hold must stay taken until then, and must come to waiters soon after, whatever its TTL was.", minHold},
	{"min-hold-over-break", "Unlock must not wait for the end of the minimum hold, and Break must be able to end it.", minHoldOverBreak},
	{"min-hold-alone", "A store that is said to keep a lock for its minimum hold must do it without the process that unlocked it.", minHoldAlone},
	{"min-hold-lost-reply", "If the answer to an Unlock is lost, what is done about it must neither free the lock within its minimum hold, nor keep it for much longer.", minHoldLostReply},
	{"ticks", "A job that several machines start at a tick, and that takes less time than their clocks differ by, must run once.", ticks},
}

// coming is when a lock that had a minimum hold came to somebody else.
type coming struct {
	at    time.Time // by then
	token uint64
	err   error
}

// comingTo asks each of ls for name, which gives it back at once.
func (x *trial) comingTo(name string, d time.Duration, ls ...locker.Locker) <-chan coming {
	comings := make(chan coming, len(ls))
	for _, l := range ls {
		go func() {
			lock, err := x.lockSlowly(x.patientFor(d), l, name)
			at := time.Now()
			if err == nil {
				comings <- coming{at, uint64(lock.Token()), lock.Unlock(x.ctx)}
				return
			}
			comings <- coming{err: err}
		}()
	}
	return comings
}

// notBefore receives n comings after held's, none of which may be before end.
func (x *trial) notBefore(end time.Time, held *locker.Lock, n int, comings <-chan coming) (last time.Time) {
	for range n {
		c := <-comings
		switch {
		case c.err != nil:
			x.failf("Lock of a name that comes free at the end of a minimum hold: %w", c.err)
		case c.at.Before(end):
			x.failf("a lock that was to be kept came to somebody else %v before the end of its minimum hold", end.Sub(c.at))
		case c.token <= uint64(held.Token()):
			x.failf("token %d was granted after token %d, at the end of a minimum hold", c.token, held.Token())
		}
		last = c.at
	}
	return last
}

// minHold unlocks at once. The minimum hold is shorter than the lease in the first round,
// and longer in the second. A goroutine of the same process waits, too.
func minHold(x *trial) {
	least := 2 * x.h.TTL
	for _, ttl := range []time.Duration{x.longTTL(), x.h.TTL} {
		a, b, name := x.locker(), x.locker(), x.name()
		end := time.Now().Add(least) // or later: it counts from the grant
		held := x.lock(a, name, locker.WithTTL(ttl), locker.WithMinHold(least))
		comings := x.comingTo(name, least, a, b)
		x.unlock(held)
		lock, err := x.locker().TryLock(x.patient(), name)
		if err == nil && time.Now().Before(end) || err != nil && !errors.Is(err, locker.ErrTaken) {
			x.failf("TryLock within the minimum hold returned %s and error %v, want ErrTaken", had(lock), err)
		}
		if err == nil { // the machine stalled
			x.unlock(lock)
		}
		last := x.notBefore(end, held, 2, comings)
		if ttl == x.longTTL() {
			x.inTime(end, last.Sub(end), ttl/2, "a lock with a TTL of %v came to waiters after its minimum hold of %v", ttl, least)
		}
	}
}

func minHoldOverBreak(x *trial) {
	a, b, name := x.locker(), x.locker(), x.name()
	breaker := x.breaker(b)
	held := x.lock(a, name, x.ttl(), locker.WithMinHold(time.Hour), locker.WithHolder("the last"))
	shows := func(kept bool) {
		if i, ok := x.inspects(b); ok {
			if info := x.inspect(i, name); !info.Held || info.Kept != kept || info.Holder != "the last" || info.Token != held.Token() {
				x.failf("a lock with token %d within its minimum hold, kept by nobody: %v, is shown as %+v", held.Token(), kept, info)
			}
		}
	}
	shows(false)
	x.unlock(held)
	shows(a.Guarantees().KeepsMinHold) // elsewhere its process keeps it
	x.taken(b, name, "within a minimum hold")
	x.breakNow(breaker, name, "a lock within its minimum hold")
	next := x.lock(b, name)
	if next.Token() <= held.Token() {
		x.failf("token %d was granted after token %d, whose minimum hold was broken", next.Token(), held.Token())
	}
	x.unlock(next)
	x.unlock(x.lock(a, name)) // its process must not go on keeping it
}

// keeping starts a process whose network can be broken, of a store that keeps locks.
// Elsewhere Unlock asks nobody, and a connection that ends may free the lock.
func (x *trial) keeping() Process {
	c := x.networked()
	if !c.Locker.Guarantees().KeepsMinHold {
		x.skip("promise that the store keeps a lock (Guarantees.KeepsMinHold)")
	}
	return c
}

func minHoldAlone(x *trial) {
	a, b, name := x.keeping(), x.locker(), x.name()
	least := 3 * x.h.TTL
	end := time.Now().Add(least)
	held := x.lock(a.Locker, name, x.ttl(), locker.WithMinHold(least))
	comings := x.comingTo(name, least, b)
	x.unlock(held)
	a.Cut()
	x.notBefore(end, held, 1, comings)
}

func minHoldLostReply(x *trial) {
	a, b, name := x.keeping(), x.locker(), x.name()
	least := 4*x.h.TTL + 3*time.Second // Unlock may wait for two seconds, and the clean-up comes after it
	end := time.Now().Add(least)
	held := x.lock(a.Locker, name, x.long(), locker.WithMinHold(least))
	comings := x.comingTo(name, x.longTTL(), b)
	a.CutReplies()
	_ = held.Unlock(x.ctx) // any answer is right
	a.Heal()
	x.inTime(end, x.notBefore(end, held, 1, comings).Sub(end), x.longTTL()/2, "a lock whose Unlock got no answer came to a waiter after its minimum hold of %v", least)
}

// ticks has three machines try one after another at each tick, each time another one
// first. If the machine is so slow that the last of them comes after the minimum hold, the
// tick shows nothing, and the next minimum is longer.
func ticks(x *trial) {
	machines, name := x.lockers(3), x.name()
	least := x.h.TTL / 4
	for tick := 0; tick < 15; {
		runs, end := 0, time.Now().Add(least)
		for i := range machines {
			err := locker.TryDo(x.patient(), machines[(tick+i)%3], name, func(context.Context, *locker.Lock) error {
				runs++
				return nil
			}, locker.WithMinHold(least))
			if err != nil && !errors.Is(err, locker.ErrTaken) {
				x.failf("TryDo at a tick: %w", err)
			}
		}
		switch inTime := time.Now().Before(end); {
		case inTime && runs != 1:
			x.failf("at tick %d, %d machines ran a job with a minimum hold of %v", tick, runs, least)
		case !inTime && least > x.h.patience:
			x.failf("three attempts took %v", least)
		case inTime:
			tick++
		default:
			least *= 2
		}
		x.unlock(x.lock(machines[tick%3], name)) // until the next tick
	}
}
