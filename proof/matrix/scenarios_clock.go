package matrix

import (
	"fmt"
	"time"

	"github.com/lockstile/locker"
)

func hasClock(s *System) bool { return s.StepClock != nil }

var needsClock = needs(hasClock, "the servers' clock cannot be stepped here")

var needsClockAhead = needs(func(s *System) bool { return s.ClockAhead != nil }, "no successor here ends a lease by a clock of its own")

var clockScenarios = []Scenario{
	{
		Name: "clock steps forward", Breaks: locker.SteadyClocks, lacks: needsClock, play: clockStepsForward,
		Story: "The servers' wall clock steps an hour forward while a lock is held.",
	},
	{
		Name: "clock steps forward unheard", Breaks: locker.SteadyClocks, lacks: needsClock, play: clockStepsForwardUnheard,
		Story: "The same, and the holder does not hear of it: its network has fallen silent.",
	},
	{
		Name: "clock steps back", Breaks: locker.SteadyClocks, lacks: needsClock, play: clockStepsBack,
		Story: "The servers' wall clock steps an hour back between two holders.",
	},
	{
		Name: "idle name and clock back", Breaks: locker.SteadyClocks, lacks: needsClock, play: idleThenBack,
		Story: "Nobody uses a name for half an hour, and then the servers' wall clock steps an hour back.",
	},
	{
		Name: "long idle name and clock back", Breaks: locker.ForwardClock, lacks: needsClock, play: idleForHoursThenBack,
		Story: "Nobody uses a name for two hours, which is longer than some stores remember the name. Then the servers' wall clock steps three hours back.",
	},
	{
		Name: "the replica's clock is ahead", Breaks: locker.AgreedClocks, lacks: both(needsClockAhead, needsNetwork), play: replicaAhead,
		Story: "The primary is lost, and a replica that has all the data and a clock that is an hour ahead takes over. The holder does not hear of it: its network has fallen silent.",
	},
	{
		Name: "servers disagree", play: serversDisagree,
		Story: "The servers' clocks are an hour apart, and each holder reaches a different majority of them.",
		lacks: needs(func(s *System) bool { return s.SkewClocks != nil && s.Narrow != nil },
			"no majority of servers that draw tokens by their own clocks"),
	},
	{
		Name: "clock back and data lost", Breaks: locker.ForwardClock | locker.DurableServer, play: clockBackAndDataLost,
		Story: "A server comes back without its data, and its clock is an hour behind.",
		lacks: needs(func(s *System) bool { return hasClock(s) && s.CrashEmpty != nil },
			"no server here can lose its data and its clock"),
	},
}

const stepForward = "the servers' clock steps an hour forward"

// clockStepsForward gives a holder the time to hear that the step has ended its session, before anybody else comes.
// That time ends before the next renewal, from which the holder of a lease would hear of its end: see slower.
func clockStepsForward(p *play) {
	p.crash(stepForward, func() error {
		if err := p.System.StepClock(time.Hour); err != nil {
			return err
		}
		p.Sleep(p.TTL / 8)
		return nil
	})
}

func clockStepsForwardUnheard(p *play) {
	p.TTL *= slower
	p.unheard(p.Worker("A"), p.Worker("B"), stepForward, func() error { return p.System.StepClock(time.Hour) })
}

func (p *play) stepBack() {
	p.Break("the servers' clock steps an hour back", func() error { return p.System.StepClock(-time.Hour) })
}

func clockStepsBack(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	a.Lock().Unlock()
	p.stepBack()
	b.Next().Unlock()
	a.Lock().Unlock()
}

func idleThenBack(p *play)         { p.idle("half an hour passes", time.Hour/2, time.Hour) }
func idleForHoursThenBack(p *play) { p.idle("two hours pass", 2*time.Hour, 3*time.Hour) }

// idle lets time pass by the servers' clock while nobody uses the lock, and then has
// the clock step back.
func (p *play) idle(passes string, pass, back time.Duration) {
	a, b := p.Worker("A"), p.Worker("B")
	a.Lock().Unlock()
	p.Arrange(passes, func() error { return p.System.StepClock(pass) })
	p.Break(fmt.Sprintf("the servers' clock steps %v back", back), func() error { return p.System.StepClock(pass - back) })
	b.Next().Unlock()
	a.Lock().Unlock()
}

func replicaAhead(p *play) {
	p.TTL *= 2 * slower // some standbys take long to promote, and A must still believe
	a, b := p.Worker("A"), p.Worker("B")
	p.Break("the replica's clock goes an hour ahead", p.System.ClockAhead)
	held := a.Lock()
	held.Write(1)
	p.Arrange("the replica has everything", p.System.CatchUp)
	p.unheardBy(held, b, takesOver, p.System.FailOver)
}

func serversDisagree(p *play) {
	p.Break("the clocks of some servers go an hour ahead", p.System.SkewClocks)
	for n, name := range []string{"A", "B", "C"} {
		held := p.narrow(p.Worker(name), n).Next()
		held.Write(n)
		held.Unlock()
	}
}

func clockBackAndDataLost(p *play) {
	p.TTL *= slower
	first := p.narrow(p.Worker("A"), 0)
	before, after := p.narrow(p.Worker("A2"), 0), p.narrow(p.Worker("B"), 1)
	first.Lock().Unlock()
	p.stepBack()
	p.crashUnder(before, after, "a server comes back empty", p.System.CrashEmpty)
}

// narrow lets a worker reach only the nth majority, where servers vote.
func (p *play) narrow(w *worker, n int) *worker {
	if p.System.Narrow != nil {
		p.Arrange(fmt.Sprintf("%s reaches majority %d only", w.Name, n+1), func() error { return p.System.Narrow(w.Net, n) })
	}
	return w
}
