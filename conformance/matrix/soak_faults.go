package matrix

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstile/locker"
)

// A fault is what a round breaks, again and again.
type fault struct {
	what   string
	breaks locker.Assumptions
	has    func(*System) bool
	cause  func(c *crew, rng *rand.Rand) // and mends it
	// server says that it is done to the servers. A round has one of these at most: some
	// cannot follow others.
	server bool
	once   bool // it cannot come again
}

func anywhere(*System) bool { return true }

func hasNetwork(s *System) bool { return needsNetwork(s) == "" }

// faultsByChance are those of the scenarios that can come at any moment.
var faultsByChance = []fault{
	{what: "a worker is stopped", breaks: locker.PromptHolder, has: anywhere, cause: (*crew).suspend},
	{what: "a worker is stopped before it writes", breaks: locker.PromptHolder, has: anywhere, cause: (*crew).stopMidway},
	{what: "a worker is killed", has: anywhere, cause: (*crew).kill},
	{what: "a worker is cut off", has: hasNetwork, cause: network(Network.Cut)},
	{what: "answers to a worker are lost or late", has: hasNetwork, cause: network(Network.CutReplies)},
	{what: "the same after one more answer", has: hasNetwork, cause: network(Network.CutRepliesAfterOne)},
	{what: "open connections of a worker fall silent", has: hasNetwork, cause: network(Network.Stall)},
	{what: "connections end, and the worker is not told", breaks: locker.ServerUp, has: hasNetwork, cause: network(Network.EndUnheard)},

	{
		what: "the servers stop", breaks: locker.ServerUp, server: true, has: func(s *System) bool { return s.Pause != nil },
		cause: func(c *crew, rng *rand.Rand) {
			c.serve("the servers stop", c.play.System.Pause)
			c.wait(between(rng, 100*time.Millisecond, 3*time.Second))
			c.mend("the servers go on", c.play.System.Resume)
		},
	},
	{
		what: crashAndReturn, breaks: locker.DurableServer, server: true, has: func(s *System) bool { return s.CrashKeeping != nil },
		cause: func(c *crew, _ *rand.Rand) { c.serve(crashAndReturn, c.play.System.CrashKeeping) },
	},
	{
		what: "a server forgets", breaks: locker.DurableServer, server: true, has: func(s *System) bool { return s.CrashEmpty != nil },
		cause: func(c *crew, _ *rand.Rand) { c.serve("a server comes back empty", c.play.System.CrashEmpty) },
	},
	{
		what: "a server comes back with old data", breaks: locker.DurableServer, server: true, has: func(s *System) bool { return s.CrashOld != nil },
		cause: func(c *crew, rng *rand.Rand) {
			c.mend("a snapshot is taken", c.play.System.Snapshot)
			c.wait(between(rng, 100*time.Millisecond, 2*time.Second))
			c.serve("a server comes back with the snapshot", c.play.System.CrashOld)
		},
	},
	{
		what: "the primary is lost", breaks: locker.DurableReplica, server: true, once: true, has: func(s *System) bool { return s.FailOver != nil },
		cause: func(c *crew, rng *rand.Rand) {
			c.serve("the replica no longer hears of anything", c.play.System.Lag)
			c.wait(between(rng, 10*time.Millisecond, time.Second))
			c.serve("the primary is lost, the replica takes over", c.play.System.FailOver)
		},
	},
	{
		what: "the primary is lost, and the replica's clock is ahead", breaks: locker.DurableReplica | locker.AgreedClocks, server: true, once: true,
		has: func(s *System) bool { return s.ClockAhead != nil },
		cause: func(c *crew, rng *rand.Rand) {
			c.serve("the replica's clock goes an hour ahead", c.play.System.ClockAhead)
			c.wait(between(rng, 100*time.Millisecond, 2*time.Second))
			c.serve("the primary is lost, the replica takes over", c.play.System.FailOver)
		},
	},
	{
		what: "as many servers are killed as are tolerated", server: true, once: true, has: func(s *System) bool { return s.KillMinority != nil },
		cause: func(c *crew, _ *rand.Rand) { c.serve("servers are killed", c.play.System.KillMinority) },
	},
	{
		what: "a majority is killed", breaks: locker.ServerUp, server: true, once: true, has: func(s *System) bool { return s.KillMajority != nil },
		cause: func(c *crew, rng *rand.Rand) {
			c.serve("a majority is killed", c.play.System.KillMajority)
			c.wait(between(rng, 100*time.Millisecond, 2*time.Second))
			c.mend("they come back", c.play.System.Restore)
		},
	},
	{
		what: "every primary hands over", server: true, once: true, has: func(s *System) bool { return s.HandOver != nil },
		cause: func(c *crew, _ *rand.Rand) {
			c.serve("every primary hands over to its replica", c.play.System.HandOver)
		},
	},
	{
		what: "keys move", server: true, has: func(s *System) bool { return s.Move != nil },
		cause: func(c *crew, rng *rand.Rand) {
			name := c.jobs[rng.IntN(len(c.jobs))].name
			c.store.Lock()
			steps := c.play.System.Move(name)
			c.store.Unlock()
			for _, step := range steps {
				c.serve(name+": "+step.What, step.Do)
				c.wait(between(rng, time.Millisecond, 100*time.Millisecond))
			}
		},
	},
	{
		what: "the servers' clock steps", breaks: locker.SteadyClocks, server: true, has: hasClock, cause: (*crew).stepClock,
	},
	{
		what: "the servers' clocks are apart", server: true, once: true, has: func(s *System) bool { return s.SkewClocks != nil },
		cause: func(c *crew, _ *rand.Rand) {
			c.serve("the clocks of some servers go an hour ahead", c.play.System.SkewClocks)
		},
	},
	{what: "a stranger takes the lock", server: true, has: func(s *System) bool { return s.Stranger != nil }, cause: (*crew).stranger},
}

// draw chooses up to four kinds of faults, which come at once. If together they excused
// everything, there would be nothing to judge. In every second round none excuses anything.
func draw(rng *rand.Rand, sys *System, g locker.Guarantees) (chosen []fault) {
	all := slices.DeleteFunc(slices.Clone(faultsByChance), func(f fault) bool { return !f.has(sys) })
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	n, strict := rng.IntN(5), rng.IntN(2) == 0
	var broken locker.Assumptions
	for _, f := range all {
		excused := broken | f.breaks
		exclusion, tokens := g.Exclusion&excused != 0, g.Tokens&excused != 0
		clashes := f.server && slices.ContainsFunc(chosen, func(had fault) bool { return had.server })
		if len(chosen) < n && !clashes && (!strict && (!exclusion || !tokens) || !exclusion && !tokens) {
			chosen, broken = append(chosen, f), excused
		}
	}
	return chosen
}

// cause breaks something now and then, until there are to be no more faults.
func (c *crew) cause(f fault, rng *rand.Rand) {
	c.play.History.mark("this round: %s", f.what)
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

// someone draws a worker, and keeps other faults from it until done is called.
func (c *crew) someone(rng *rand.Rand) (s *seat, done func()) {
	s = c.seats[rng.IntN(len(c.seats))]
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
	p, former := c.play, s.worker.Load()
	p.must(former.Kill())
	c.wait(between(rng, time.Millisecond, time.Second))
	c.store.Lock()
	url, net, err := p.System.Client()
	c.store.Unlock()
	p.must(err)
	w, err := p.startAt(p.ctx, nextName(former.Name), url, net)
	p.must(err)
	s.worker.Store(w)
}

// nextName is A2 after A, and A3 after A2.
func nextName(name string) string {
	n := 1
	_, _ = fmt.Sscan(name[1:], &n) // A is the first
	return fmt.Sprint(name[:1], n+1)
}

// network breaks a worker's network, or its way to some of the servers. What was held back
// is lost or comes late.
func network(breaks func(Network)) func(*crew, *rand.Rand) {
	return func(c *crew, rng *rand.Rand) {
		s, done := c.someone(rng)
		defer done()
		w := s.worker.Load()
		net := some(w.Net, rng)
		c.play.Break("the network of "+w.Name+" fails", func() error { breaks(net); return nil })
		c.wait(between(rng, 20*time.Millisecond, 2*c.play.TTL))
		if rng.IntN(2) == 0 {
			c.play.History.mark("what the network of %s held back is delivered late", w.Name)
			net.Deliver()
			return
		}
		c.play.History.mark("the network of %s is healed", w.Name)
		net.Heal()
	}
}

// some draws a part of the network, if it has parts, or all of it.
func some(net Network, rng *rand.Rand) Network {
	all, ok := net.(Proxies)
	if !ok || len(all) < 2 || rng.IntN(2) == 0 {
		return net
	}
	first := rng.IntN(len(all))
	return all[first : first+1+rng.IntN(len(all)-first)]
}

// stepClock steps forward by half an hour, or a few seconds to and fro, some times. No
// counter of a store is forgotten meanwhile, and no clock goes back by more than that.
func (c *crew) stepClock(rng *rand.Rand) {
	for range 1 + rng.IntN(4) {
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

// stranger takes a lock as another library does, if it can be had, for a while.
func (c *crew) stranger(rng *rand.Rand) {
	name := c.jobs[rng.IntN(2)].name // an exclusive one
	release, err := c.play.System.Stranger(name)
	if err != nil {
		return
	}
	c.play.History.fault("a stranger has taken %s", name)
	c.wait(between(rng, 20*time.Millisecond, 2*c.play.TTL))
	c.play.History.mark("the stranger releases %s", name)
	c.play.must(release())
}
