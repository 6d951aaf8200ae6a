package matrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
)

// faultTime is how long a round has faults.
const faultTime = 10 * time.Second

// round is a scenario in which everything is drawn by chance: the faults, what the workers ask
// for, and when. The seed decides what is drawn. It cannot decide how processes interleave, so
// a failure may need its seed more than once.
func round(seed uint64) Scenario {
	return Scenario{
		Name: fmt.Sprint("seed ", seed), ruins: true,
		Story: "Workers lock several names in every way that there is, and faults come by chance.",
		play:  func(p *play) { p.round(rand.New(rand.NewPCG(seed, 0))) },
	}
}

func (p *play) round(rng *rand.Rand) {
	c := newCrew(p, (*crew).anything)
	defer c.stop()
	c.recruit(workers, c.allKinds(p.name)...)
	p.names = append(p.names, p.name)
	c.tryTTLs()
	chosen := c.excusing(draw(rng, c.system(), p.guarantees))
	c.work(lanes, rng)
	c.spawn(&c.faults, rng, func(rng *rand.Rand) { c.lone(p.name, rng) })
	for _, f := range chosen {
		c.spawn(&c.faults, rng, func(rng *rand.Rand) { c.cause(f, rng) })
	}
	c.judgedAfter(faultTime)
}

// work has every worker make so many calls at a time.
func (c *crew) work(lanes int, rng *rand.Rand) {
	for _, s := range c.seats {
		for range lanes {
			c.spawn(&c.lanes, rng, func(rng *rand.Rand) { c.lane(s, rng) })
		}
	}
}

// judgedAfter ends the faults and the calls after that time.
func (c *crew) judgedAfter(d time.Duration) {
	c.play.Sleep(d)
	c.stop()
	c.play.must(c.failed())
	c.settle()
	c.play.must(c.failed())
}

// Workers of a round, and how many calls each has under way at once.
const (
	workers = 4
	lanes   = 3
)

// crew is the workers of a round, and what is done with them and to them.
type crew struct {
	play  *play
	seats []*seat
	jobs  []job
	ttls  []time.Duration                         // that the locks can have
	turn  func(*crew, *seat, *worker, *rand.Rand) // one call, and what comes of it
	last  atomic.Pointer[seat]                    // whose call was granted last

	calm, over    chan struct{} // closed when no more faults begin, and no more calls
	lanes, faults sync.WaitGroup
	store         sync.Mutex    // one thing at a time is done to the servers
	ahead         time.Duration // by which their clock has been put forward

	mu   sync.Mutex
	errs []error
}

// job is a lock, and how it is asked for.
type job struct {
	name  string
	kinds []locker.Kind
}

// seat is a worker's place.
type seat struct {
	name   string
	worker atomic.Pointer[worker]
	fault  sync.Mutex // one fault at a time is the worker's own
	lives  int        // workers that it has had; of who has fault
}

// successor names the worker that comes after one that was killed: A.2 after A, and then A.3.
func (s *seat) successor() string {
	s.lives++
	return fmt.Sprint(s.name, ".", s.lives)
}

func newCrew(p *play, turn func(*crew, *seat, *worker, *rand.Rand)) *crew {
	return &crew{play: p, turn: turn, calm: make(chan struct{}), over: make(chan struct{})}
}

// system is the play's, to be asked what it can break: to ask the play's own whether there is a
// network would start one more.
func (c *crew) system() *System {
	known := *c.play.System
	known.Client = func() (string, conformance.Network, error) { return "", c.seats[0].worker.Load().Net, nil }
	return &known
}

// excusing has the round excuse what the chosen faults break.
func (c *crew) excusing(chosen []fault) []fault {
	for _, f := range chosen {
		c.play.scenario.Breaks |= f.Breaks
	}
	return chosen
}

// recruit starts the workers for these jobs.
func (c *crew) recruit(workers int, jobs ...job) {
	p := c.play
	c.jobs, p.names = jobs, nil
	for _, j := range jobs {
		p.names = append(p.names, j.name)
	}
	for i := range workers {
		s := &seat{name: seatName(i), lives: 1}
		s.worker.Store(p.Worker(s.name))
		c.seats = append(c.seats, s)
	}
}

// allKinds returns a job for every kind of lock that there is.
func (c *crew) allKinds(name string) []job {
	jobs := []job{{name + "-a", []locker.Kind{locker.KindExclusive}}, {name + "-b", []locker.Kind{locker.KindExclusive}}}
	if c.play.guarantees.Shared {
		jobs = append(jobs, job{name + "-rw", []locker.Kind{locker.KindExclusive, locker.KindShared, locker.KindShared}})
	}
	if c.play.guarantees.Slots {
		jobs = append(jobs, job{name + "-s", []locker.Kind{locker.KindSlots}})
	}
	return jobs
}

// tryTTLs finds out which TTLs the locks can have by asking, for what a backend cannot honour is
// an error.
func (c *crew) tryTTLs() {
	p, asker := c.play, c.seats[0].worker.Load()
	for _, ttl := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, longestTTL} {
		l, err := asker.granted(p.name, asker.tell(order{Verb: "try", Name: p.name, TTL: ttl, Bound: patience}))
		if err == nil {
			l.Unlock()
			c.ttls = append(c.ttls, ttl)
		}
	}
	if len(c.ttls) == 0 {
		c.ttls = []time.Duration{p.TTL}
	}
}

const longestTTL = 10 * time.Second

// stop has no more faults begin, and no more calls, and waits for the faults to be mended. The
// calls end at the latest with the workers.
func (c *crew) stop() {
	if c.play.History.Calm != 0 {
		return
	}
	close(c.calm)
	c.faults.Wait()
	c.play.History.Calm = now()
	c.play.History.Mark("no more faults, and nothing new is asked for")
	close(c.over)
}

// spawn runs f in a goroutine, with dice of its own.
func (c *crew) spawn(group *sync.WaitGroup, rng *rand.Rand, f func(*rand.Rand)) {
	own := rand.New(rand.NewPCG(rng.Uint64(), 0))
	group.Add(1)
	c.play.asking.Go(func() {
		defer group.Done()
		err := try(func() { f(own) })
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	})
}

func (c *crew) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}

// wait lets time pass until no more faults begin, and reports whether more may.
func (c *crew) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.calm:
	case <-c.play.ctx.Done():
		c.play.must(context.Cause(c.play.ctx))
	}
	return false
}

// settleTime is how long a name may stay taken when nothing is broken any more: a lease that
// somebody left, and more than any store needs to end it.
func (c *crew) settleTime() time.Duration { return longestTTL + c.play.long() }

// settle checks that nobody waits for ever: when nobody begins anything any more, every call
// that waits must be granted, and then each name must be free.
func (c *crew) settle() {
	p := c.play
	ended := make(chan struct{})
	go func() { c.lanes.Wait(); close(ended) }()
	timer := time.NewTimer(c.settleTime())
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		p.must(&standstill{fmt.Errorf("a Lock is not granted though everybody else has unlocked %v ago: %s", c.settleTime(), c.waiting())})
	case <-p.ctx.Done():
		p.must(context.Cause(p.ctx))
	}
	last := p.Worker("last")
	p.all(together(c.jobs, func(_ int, j job) { c.free(last, j) }))
}

// waiting says which calls have not been answered.
func (c *crew) waiting() string {
	var calls []string
	for _, s := range c.seats {
		w := s.worker.Load()
		w.mu.Lock()
		if n := len(w.waiting); n > 0 {
			calls = append(calls, fmt.Sprintf("%d of %s", n, w.Name))
		}
		w.mu.Unlock()
	}
	return strings.Join(calls, ", ")
}

// free checks that a name, or each of its slots, can be locked.
func (c *crew) free(w *worker, j job) {
	p, o := c.play, order{Verb: "lock", Name: j.name, Kind: j.kinds[0], TTL: c.ttls[len(c.ttls)-1], Bound: c.settleTime()}
	n := 1
	if o.Kind == locker.KindSlots {
		o.Slots, n = slots, slots
	}
	var held []workerLock
	for end := time.Now().Add(c.settleTime()); len(held) < n; p.Sleep(p.TTL / 20) {
		l, err := w.claimed(w.granted(j.name, w.tell(o)))
		var no *refusal
		switch {
		case err == nil:
			held = append(held, l)
		case !errors.As(err, &no):
			p.must(err)
		case time.Now().After(end):
			p.must(&standstill{fmt.Errorf("%s is not free %v after everybody has unlocked it: %w", j.name, c.settleTime(), no)})
		}
	}
	for _, l := range held {
		l.Unlock()
	}
}
