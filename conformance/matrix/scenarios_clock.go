package matrix

import (
	"fmt"
	"time"

	"github.com/lockstile/locker"
)

func hasClock(s *System) bool { return s.StepClock != nil }

const noClock = "the servers' clock cannot be stepped here"

func clockScenarios() []Scenario {
	return []Scenario{
		{
			Name:   "clock steps forward",
			Story:  "The servers' wall clock steps an hour forward while a lock is held.",
			Breaks: locker.SteadyClocks,
			Needs:  want(hasClock, noClock),
			Play: func(p *Play) {
				p.crash("the servers' clock steps an hour forward", func() error { return p.System.StepClock(time.Hour) })
			},
		},
		{
			Name:   "clock steps forward unheard",
			Story:  "The same, and the holder's network has fallen silent, so that it does not hear what comes of it.",
			Breaks: locker.SteadyClocks,
			Needs:  want(hasClock, noClock),
			Play: func(p *Play) {
				if p.TTL *= slower; p.guarantees.Release == locker.ByConnection {
					p.TTL = outlook
				}
				p.unheard(p.Worker("A"), p.Worker("B"), "the servers' clock steps an hour forward", func() error { return p.System.StepClock(time.Hour) })
			},
		},
		{
			Name:   "clock steps back",
			Story:  "The servers' wall clock steps an hour back between two holders.",
			Breaks: locker.SteadyClocks,
			Needs:  want(hasClock, noClock),
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				a.Lock().Unlock()
				p.Break("the servers' clock steps an hour back", func() error { return p.System.StepClock(-time.Hour) })
				b.Next().Unlock()
				a.Lock().Unlock()
			},
		},
		{
			Name:  "servers disagree",
			Story: "The servers' clocks are an hour apart, and each holder reaches another majority of them.",
			Needs: want(func(s *System) bool { return s.SkewClocks != nil && s.Narrow != nil },
				"no majority of servers that draw tokens by their own clocks"),
			Play: func(p *Play) {
				p.Break("the clocks of some servers go an hour ahead", p.System.SkewClocks)
				for n, name := range []string{"A", "B", "C"} {
					g := p.narrow(p.Worker(name), n).Next()
					g.Write(n)
					g.Unlock()
				}
			},
		},
		{
			Name:   "clock back and data lost",
			Story:  "A server comes back without its data, and its clock is an hour behind.",
			Breaks: locker.ForwardClock | locker.DurableServer,
			Needs: want(func(s *System) bool { return hasClock(s) && s.CrashEmpty != nil },
				"no server here can lose its data and its clock"),
			Play: func(p *Play) {
				p.TTL *= slower
				first := p.narrow(p.Worker("A"), 0)
				before, after := p.narrow(p.Worker("A2"), 0), p.narrow(p.Worker("B"), 1)
				first.Lock().Unlock()
				p.Break("the servers' clock steps an hour back", func() error { return p.System.StepClock(-time.Hour) })
				p.crashUnder(before, after, "a server comes back empty", p.System.CrashEmpty)
			},
		},
	}
}

// outlook is how long the holder of a connection believes here. A step of the wall
// clock makes PostgreSQL end a silent connection early, but only when another of
// its timers has it look at that clock: the one for statistics, after ten seconds.
const outlook = 20 * time.Second

// narrow lets a worker reach only the nth majority, where servers vote.
func (p *Play) narrow(w *Worker, n int) *Worker {
	if p.System.Narrow != nil {
		p.Arrange(fmt.Sprintf("%s reaches majority %d only", w.Name, n+1), func() error { return p.System.Narrow(w.Net, n) })
	}
	return w
}
