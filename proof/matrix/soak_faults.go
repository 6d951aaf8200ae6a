package matrix

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
)

// A chance is what a round breaks, again and again: what a scenario is about, at any moment.
type chance struct {
	scenario string             // which says what it breaks, and what it needs
	also     locker.Assumptions // are broken besides, because nobody waits for the right moment
	once     bool               // it cannot come again
	alone    bool               // it cannot come beside what is done to servers
	cause    func(c *crew, rng *rand.Rand)
}

// A fault is a chance with its scenario.
type fault struct {
	chance
	Scenario
}

var chances = []chance{
	{scenario: "suspended holder", also: locker.PromptHolder, cause: (*crew).suspend},
	{scenario: "pause before the write", cause: (*crew).stopMidway},
	{scenario: "dead holder", cause: (*crew).kill},
	{scenario: "holder cut off", cause: network(conformance.Network.Cut)},
	{scenario: "holder deaf", cause: network(conformance.Network.CutReplies)},
	{scenario: "slow second answer", cause: network(conformance.Network.CutRepliesAfterOne)},
	{scenario: "late lock", cause: network(conformance.Network.Stall)},
	{scenario: "told nothing", cause: network(conformance.Network.EndUnheard)},
	{scenario: "server stops", cause: func(c *crew, rng *rand.Rand) {
		c.serve("the servers stop", c.play.System.Pause)
		c.wait(between(rng, 100*time.Millisecond, 3*time.Second))
		c.mend("the servers go on", c.play.System.Resume)
	}},
	{scenario: "server crashes", cause: func(c *crew, _ *rand.Rand) { c.serve(crashAndReturn, c.play.System.CrashKeeping) }},
	{scenario: "server forgets", cause: func(c *crew, _ *rand.Rand) { c.serve("a server comes back empty", c.play.System.CrashEmpty) }},
	{scenario: "old snapshot", cause: func(c *crew, rng *rand.Rand) {
		c.mend("a snapshot is taken", c.play.System.Snapshot)
		c.wait(between(rng, 100*time.Millisecond, 2*time.Second))
		c.serve("a server comes back with the snapshot", c.play.System.CrashOld)
	}},
	{scenario: "failover", once: true, cause: func(c *crew, rng *rand.Rand) {
		c.serve("the replica no longer hears of anything", c.play.System.Lag)
		c.wait(between(rng, 10*time.Millisecond, time.Second))
		c.serve(takesOver, c.play.System.FailOver)
	}},
	{scenario: "the replica's clock is ahead", also: locker.DurableReplica, once: true, cause: func(c *crew, rng *rand.Rand) {
		c.serve("the replica's clock goes an hour ahead", c.play.System.ClockAhead)
		c.wait(between(rng, 100*time.Millisecond, 2*time.Second))
		c.serve(takesOver, c.play.System.FailOver)
	}},
	{scenario: "as many servers down as are tolerated", once: true, cause: func(c *crew, _ *rand.Rand) {
		c.serve("servers are killed", c.play.System.KillMinority)
	}},
	{scenario: "majority lost", also: locker.DurableServer, once: true, cause: func(c *crew, rng *rand.Rand) {
		c.serve("a majority is killed", c.play.System.KillMajority)
		c.wait(between(rng, 100*time.Millisecond, 2*time.Second))
		c.mend("they come back", c.play.System.Restore)
	}},
	{scenario: "Cluster failover", once: true, cause: func(c *crew, _ *rand.Rand) {
		c.serve("every primary hands over to its replica", c.play.System.HandOver)
	}},
	{scenario: "Cluster reshard", cause: (*crew).move},
	{scenario: "clock steps forward", once: true, cause: (*crew).stepClock},
	{scenario: "servers disagree", also: locker.SteadyClocks, once: true, cause: func(c *crew, _ *rand.Rand) {
		c.serve("the clocks of some servers go an hour ahead", c.play.System.SkewClocks)
	}},
	{scenario: "a stranger's release", alone: true, cause: (*crew).stranger},
}

// faultsByChance returns all that can come to sys at random.
func faultsByChance(sys *System) (all []fault) {
	scenarios := Scenarios()
	for _, c := range chances {
		i := slices.IndexFunc(scenarios, func(sc Scenario) bool { return sc.Name == c.scenario })
		f := fault{c, scenarios[i]}
		f.Breaks |= c.also
		if f.lacks == nil || f.lacks(sys) == "" {
			all = append(all, f)
		}
	}
	return all
}

// server reports whether it is done to the servers. A round has one of these at most: some
// cannot follow others.
func (f fault) server() bool { return f.ruins || f.alone }

// draw chooses up to four kinds of faults, which come at once. If together they excused
// everything, there would be nothing to judge. In every second round none excuses anything.
func draw(rng *rand.Rand, sys *System, g locker.Guarantees) (chosen []fault) {
	all := faultsByChance(sys)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	n, strict := rng.IntN(5), rng.IntN(2) == 0
	var broken locker.Assumptions
	for _, f := range all {
		excused := broken | f.Breaks
		exclusion, tokens := g.Exclusion&excused != 0, g.Tokens&excused != 0
		clashes := f.server() && slices.ContainsFunc(chosen, func(had fault) bool { return had.server() })
		if len(chosen) < n && !clashes && (!strict && (!exclusion || !tokens) || !exclusion && !tokens) {
			chosen, broken = append(chosen, f), excused
		}
	}
	return chosen
}

// cause breaks something now and then, until there are to be no more faults.
func (c *crew) cause(f fault, rng *rand.Rand) {
	c.play.History.Mark("this round: %s", f.Name)
	for c.wait(between(rng, 100*time.Millisecond, 2*time.Second)) {
		f.cause(c, rng)
		if f.once {
			return
		}
	}
}

// serve breaks something about the servers, mend ends that.
func (c *crew) serve(what string, f func() error) {
	c.store.Lock()
	defer c.store.Unlock()
	c.play.Break(what, f)
}

func (c *crew) mend(what string, f func() error) {
	c.store.Lock()
	defer c.store.Unlock()
	c.play.Arrange(what, f)
}

// someone draws a worker, mostly the last that was granted a lock, and keeps other faults from it
// until done is called.
func (c *crew) someone(rng *rand.Rand) (s *seat, done func()) {
	s = c.seats[rng.IntN(len(c.seats))]
	if last := c.last.Load(); last != nil && rng.IntN(3) > 0 {
		s = last
	}
	s.fault.Lock()
	return s, s.fault.Unlock
}

// pause draws how long a worker is stopped: for less than the shortest lease or for longer than most.
func (c *crew) pause(rng *rand.Rand) time.Duration {
	return between(rng, 20*time.Millisecond, 2*c.play.TTL)
}

func (c *crew) suspend(rng *rand.Rand) {
	s, done := c.someone(rng)
	defer done()
	w := s.worker.Load()
	c.play.must(w.Suspend())
	c.wait(c.pause(rng))
	c.play.must(w.Wake())
}

// stopMidway stops a holder between its look at the lock and its write.
func (c *crew) stopMidway(rng *rand.Rand) {
	s, done := c.someone(rng)
	defer done()
	w, o := s.worker.Load(), c.order(rng)
	l, err := w.claimed(w.granted(o.Name, w.tell(o)))
	if err != nil {
		return // there is nothing to write to
	}
	var wake func()
	err = try(func() { wake = l.LookThenSleepThenWrite(rng.IntN(100)) })
	if errors.Is(err, errNotHeld) {
		return
	}
	c.play.must(err)
	c.wait(c.pause(rng))
	wake()
	l.Unlock()
}

func (c *crew) kill(rng *rand.Rand) {
	s, done := c.someone(rng)
	defer done()
	p := c.play
	p.must(s.worker.Load().Kill())
	name := s.successor()
	c.wait(between(rng, time.Millisecond, time.Second))
	c.store.Lock()
	url, net, err := p.System.Client()
	c.store.Unlock()
	p.must(err)
	for end := time.Now().Add(patience); ; p.Sleep(lookAgain) { // the servers may be down just now
		w, err := p.startAt(p.ctx, name, url, net)
		if !errors.Is(err, errEndedAtOnce) || time.Now().After(end) {
			p.must(err)
			s.worker.Store(w)
			return
		}
	}
}

// seatName is A to Z, then A1 to Z1, and so on.
func seatName(i int) string {
	const letters = 26
	name := string(rune('A' + i%letters))
	if i >= letters {
		name += strconv.Itoa(i / letters)
	}
	return name
}

// network breaks a worker's network, or its way to some of the servers. What was held back
// is lost with its connections, or comes late. To close a connection that has locks frees them,
// perhaps before their holder hears of it: a round that does not excuse that closes none.
func network(breaks func(conformance.Network)) func(*crew, *rand.Rand) {
	return func(c *crew, rng *rand.Rand) {
		s, done := c.someone(rng)
		defer done()
		w := s.worker.Load()
		net := some(w.Net, rng)
		c.play.Break("the network of "+w.Name+" fails", func() error { breaks(net); return nil })
		c.wait(between(rng, 20*time.Millisecond, 2*c.play.TTL))
		closes := c.play.guarantees.FreedBy != locker.FreedByConnection || c.play.scenario.Breaks.Has(locker.ServerUp)
		if rng.IntN(2) == 0 || !closes {
			c.play.History.Mark("what the network of %s held back is delivered late", w.Name)
			net.Deliver()
			return
		}
		c.play.History.Mark("the network of %s is healed", w.Name)
		net.Heal()
	}
}

// some draws a part of the network, if it has parts, or all of it.
func some(net conformance.Network, rng *rand.Rand) conformance.Network {
	all, ok := net.(conformance.Proxies)
	if !ok || len(all) < 2 || rng.IntN(2) == 0 {
		return net
	}
	first := rng.IntN(len(all))
	return all[first : first+1+rng.IntN(len(all)-first)]
}

// stepClock steps forward by half an hour, or a few seconds to and fro, some times. No
// counter of a store is forgotten meanwhile, and no clock goes back by more than that.
func (c *crew) stepClock(rng *rand.Rand) {
	for range 1 + rng.IntN(8) {
		if rng.IntN(2) == 0 {
			c.ahead += time.Hour / 2
		}
		off := c.ahead + time.Duration(rng.Int64N(int64(10*time.Second))) - 5*time.Second
		c.serve(fmt.Sprintf("the servers' clock is off by %v", off.Round(time.Millisecond)), func() error { return c.play.System.StepClock(off) })
		if !c.wait(between(rng, 50*time.Millisecond, 2*time.Second)) {
			return
		}
	}
}

// move moves the keys of a lock to another server.
func (c *crew) move(rng *rand.Rand) {
	name := c.jobs[rng.IntN(len(c.jobs))].name
	c.store.Lock()
	steps := c.play.System.Move(name)
	c.store.Unlock()
	for _, step := range steps {
		c.serve(name+": "+step.What, step.Do)
		c.wait(between(rng, time.Millisecond, 100*time.Millisecond))
	}
}

// stranger takes a lock as another library does, if it can be had, for a while.
func (c *crew) stranger(rng *rand.Rand) {
	name := c.jobs[rng.IntN(2)].name // an exclusive one
	release, err := c.play.System.Stranger(name)
	if err != nil {
		return
	}
	c.play.History.Fault("a stranger has taken %s", name)
	c.wait(between(rng, 20*time.Millisecond, 2*c.play.TTL))
	c.play.History.Mark("the stranger releases %s", name)
	c.play.must(release())
}
