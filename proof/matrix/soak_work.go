package matrix

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/lockstile/locker"
)

// lane makes one call after another, until the round is over.
func (c *crew) lane(s *seat, rng *rand.Rand) {
	for {
		select {
		case <-c.over:
			return
		default:
		}
		w := s.worker.Load()
		err := try(func() { c.turn(c, s, w, rng) })
		if errors.Is(err, errGone) { // killed; another one comes
			c.play.Sleep(lookAgain)
			continue
		}
		c.play.must(err)
	}
}

// anything asks for a lock, and does with it what holders do, well or badly.
func (c *crew) anything(s *seat, w *worker, rng *rand.Rand) {
	p, o := c.play, c.order(rng)
	l, ok := c.got(s, w, o)
	if !ok {
		p.Sleep(between(rng, time.Millisecond, 50*time.Millisecond))
		return
	}
	for range rng.IntN(4) {
		p.Sleep(between(rng, time.Millisecond, 30*time.Millisecond))
		l.Write(rng.IntN(100))
	}
	if rng.IntN(6) == 0 {
		_ = l.tryRenew() // of a lock that may have been lost
	}
	if rng.IntN(6) == 0 && o.TTL <= p.TTL { // for longer than the lease
		p.Sleep(o.TTL * 3 / 2)
		l.Write(rng.IntN(100))
	}
	if c.detaches(o, rng) {
		c.handOver(l, o, rng)
		return
	}
	if rng.IntN(8) == 0 { // in a context that ends at once
		l.unlockIn(between(rng, time.Microsecond, 10*time.Millisecond))
		return
	}
	l.Unlock()
}

// got has a worker ask for a lock, and reports whether it was granted.
func (c *crew) got(s *seat, w *worker, o order) (workerLock, bool) {
	l, err := w.claimed(w.granted(o.Name, w.tell(o)))
	var no *refusal
	if errors.As(err, &no) {
		c.refused(no, o)
		return l, false
	}
	c.play.must(err)
	c.last.Store(s)
	return l, true
}

// lone asks for a lock that nobody else wants, and gives up soon. A name that may have been left
// locked is not asked for again: a request that is still on its way may lock it at any time.
func (c *crew) lone(prefix string, rng *rand.Rand) {
	var name string
	for n, free := 0, false; c.wait(between(rng, 10*time.Millisecond, 300*time.Millisecond)); {
		if !free {
			n++
			name = fmt.Sprint(prefix, "-", n)
			c.play.names = append(c.play.names, name)
		}
		i := rng.IntN(workers)
		first, next := c.seats[i].worker.Load(), c.seats[(i+1+rng.IntN(workers-1))%workers].worker.Load()
		free = false
		err := try(func() { free = c.giveUpSoon(name, first, next, rng) })
		if !errors.Is(err, errGone) {
			c.play.must(err)
		}
		if !free {
			c.play.History.Mark("%s may have been left locked", name)
		}
	}
}

// giveUpSoon has first try for a lock that is free. If first is told that it holds nothing, next
// must get the lock. It reports whether the lock is surely free again.
func (c *crew) giveUpSoon(name string, first, next *worker, rng *rand.Rand) (free bool) {
	ttl := c.ttls[len(c.ttls)-1]
	attempt := func(w *worker, bound time.Duration) (workerLock, error) {
		return w.granted(name, w.tell(order{Verb: "try", Name: name, TTL: ttl, Bound: bound}))
	}
	l, err := attempt(first, between(rng, time.Millisecond, shortly))
	if err == nil {
		return l.unlockIn(patience)
	}
	if !errors.As(err, new(*refusal)) {
		c.play.must(err)
	}
	if c.forgetful() {
		return false
	}
	return c.play.checkNothingHeldBy(err, ttl, func() (workerLock, error) { return attempt(next, patience) })
}

// forgetful reports whether a server may forget what it has told somebody: that a lock is given
// back, or that a request which is still on its way will be refused. It remembers that by its
// clock, if its locks depend on one.
func (c *crew) forgetful() bool {
	memory := locker.DurableServer | locker.DurableReplica | c.play.guarantees.Exclusion&locker.SteadyClocks
	return c.play.scenario.Breaks&memory != 0
}

// order draws a call.
func (c *crew) order(rng *rand.Rand) order {
	j := c.jobs[rng.IntN(len(c.jobs))]
	o := order{
		Verb: "lock", Name: j.name, Kind: j.kinds[rng.IntN(len(j.kinds))], TTL: c.ttls[rng.IntN(len(c.ttls))],
		Bound: patience, NoRenew: rng.IntN(4) == 0,
	}
	if rng.IntN(3) == 0 {
		o.Verb = "try"
	}
	if rng.IntN(2) == 0 {
		o.Bound = between(rng, time.Millisecond, 5*time.Second)
	}
	if o.Kind == locker.KindSlots {
		o.Slots = slots
	}
	return o
}

func (c *crew) refused(no *refusal, o order) {
	h := c.play.History
	switch {
	case no.NoKind:
		h.NoteUntrue("it declares the kind %v, and refuses it: %v", o.Kind, no)
	case no.Unknown:
		h.UnknownOutcome()
	}
}

// between draws a time, a short one as often as one that is ten times as long.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), rng.Float64()))
}
