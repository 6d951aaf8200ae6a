package matrix

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockstile/locker"
)

const (
	// crowdTime is how long a round of a crowd has faults at most, and faultEvery how often.
	crowdTime  = 30 * time.Second
	faultEvery = 2 * time.Second
)

// crowd plays rounds with many workers on the same servers, between two looks at what those hold.
func (s *soak) crowd(ctx context.Context) {
	sys, _, err := s.servers.shared()
	if err == nil && sys.Stored != nil {
		s.servers.asked.Do(func() {}) // what the store holds is counted after its first lock, and one before would add to it
		s.Before = s.stored(ctx, math.MaxInt)
	}
	s.rounds(ctx, func(seed uint64) Scenario { return crowdRound(seed, s.how.Crowd, min(crowdTime, s.how.For)) })
	if s.Before != nil {
		s.After = s.stored(ctx, s.Before.Entries)
	}
}

// stored returns what the store holds, or nil if that was not found out. Its history is kept if it
// shows something.
func (s *soak) stored(ctx context.Context, most int) *Stored {
	held := new(Stored)
	cell := s.play(ctx, look(held, most))
	if cell.failed() && !cutOff(ctx, cell) {
		s.Kept = append(s.Kept, cell)
	}
	if cell.Verdict == NotPlayed {
		return nil
	}
	return held
}

// inOrder requires greater tokens than in the rounds before, on the same servers.
func (s *soak) inOrder(c *Cell) {
	h, last := c.History, s.last
	if h == nil || h.Tokenless {
		return
	}
	for _, span := range h.Counting() {
		if s.last = max(s.last, span.Token); span.Token <= last {
			c.Verdict, c.Why = FalseClaim, fmt.Sprintf("%s was given token %d, and %d was given in an earlier round", span.Worker, span.Token, last)
		}
	}
}

// crowdRound is a round in which so many workers want one exclusive lock. Its faults excuse
// nothing, and it leaves the servers as it found them.
func crowdRound(seed uint64, workers int, d time.Duration) Scenario {
	return Scenario{
		Name:  fmt.Sprint("seed ", seed),
		Story: "Many workers want one lock, and a fault comes every two seconds.",
		play:  func(p *play) { p.crowd(rand.New(rand.NewPCG(seed, 0)), workers, d) },
	}
}

func (p *play) crowd(rng *rand.Rand, workers int, d time.Duration) {
	c := newCrew(p, (*crew).briefly)
	defer c.stop()
	c.ttls = []time.Duration{p.TTL}
	c.recruit(workers, job{p.name, []locker.Kind{locker.KindExclusive}})
	chosen := c.excusing(lasting(c.system(), p.guarantees))
	c.work(1, rng)
	c.spawn(&c.faults, rng, func(rng *rand.Rand) { c.causeEvery(faultEvery, chosen, rng) })
	c.judgedAfter(d)
}

// lasting returns the faults that can come again and again and excuse nothing, or nothing but the
// late write of a worker that was stopped.
func lasting(sys *System, g locker.Guarantees) []fault {
	return slices.DeleteFunc(faultsByChance(sys), func(f fault) bool {
		excuses := (g.Exclusion|g.Tokens)&f.Breaks&^f.also != 0
		return f.once || f.alone || excuses
	})
}

// causeEvery causes one of these faults at a time, or several if they take long. One thing at a
// time is done to the servers.
func (c *crew) causeEvery(d time.Duration, chosen []fault, rng *rand.Rand) {
	if len(chosen) == 0 {
		c.play.notPlayed("no fault can come again and again")
	}
	var servers sync.Mutex
	for c.wait(d) {
		f := chosen[rng.IntN(len(chosen))]
		c.spawn(&c.faults, rng, func(rng *rand.Rand) {
			if f.server() {
				servers.Lock()
				defer servers.Unlock()
			}
			f.cause(c, rng)
		})
	}
}

// briefly waits for the lock, writes, and unlocks.
func (c *crew) briefly(s *seat, w *worker, rng *rand.Rand) {
	o := order{Verb: "lock", Name: c.jobs[0].name, TTL: c.ttls[0], Bound: patience}
	l, ok := c.got(s, w, o)
	if !ok {
		c.play.Sleep(c.play.TTL / 20)
		return
	}
	l.Write(rng.IntN(100))
	l.Unlock()
}

// Stored is what the servers of a store hold together.
type Stored struct {
	Entries int   `json:"entries"` // keys, rows, nodes, files, sessions, locks
	Bytes   int64 `json:"bytes"`   // of memory or, where there is a disk, of that, as the store says
}

// lookTime is how long a store may hold more than it must: the marks that keep late requests out
// stay for a minute, and so do sessions of processes that were killed at most.
const lookTime = 2 * time.Minute

// look has workers come one after another, each of which locks and unlocks once. Then it notes
// what the store holds.
func look(into *Stored, most int) Scenario {
	return Scenario{Name: "what the store holds", Story: "One worker locks and unlocks once.", play: func(p *play) {
		p.noteStored(into, most, func() (end func()) {
			w := p.Worker("A")
			w.Lock().Unlock()
			return w.end
		})
	}}
}

// noteStored notes what the store holds when that is not more than most, or has been more for long. Each look may leave
// a mark itself, so the last pause is longer than marks stay.
func (p *play) noteStored(into *Stored, most int, use func() (end func())) {
	for _, pause := range []time.Duration{lookTime / 12, lookTime / 3, lookTime * 7 / 12, 0} {
		leave := use()
		var err error
		*into, err = p.System.Stored()
		p.must(err)
		if into.Entries <= most {
			return
		}
		leave()
		p.Sleep(pause)
	}
	p.History.NoteUntrue("the store holds %d entries, and held %d when one worker had locked and unlocked once", into.Entries, most)
}
