package matrix

import (
	"time"

	"github.com/lockstile/locker"
)

var needsRestart = needs(func(s *System) bool { return s.CrashKeeping != nil }, "there is no server to crash")

var needsReplica = needs(func(s *System) bool { return s.FailOver != nil }, "there is no replica that could take over")

var serverScenarios = []Scenario{
	{
		Name: "server crashes", Breaks: locker.DurableServer, lacks: needsRestart, play: serverCrashes,
		Story: "A server is killed while a lock is held, and comes back with what it has on disk.",
	},
	{
		Name: "server crashes unheard", Breaks: locker.DurableServer, lacks: both(needsRestart, needsNetwork), play: serverCrashesUnheard,
		Story: "The same, and the holder does not hear of it: its network has fallen silent.",
	},
	{
		Name: "server forgets", Breaks: locker.DurableServer, play: serverForgets,
		Story: "A server is killed while a lock is held, and comes back without its data.",
		lacks: needs(func(s *System) bool { return s.CrashEmpty != nil }, "no server here can come back without its data"),
	},
	{
		Name: "old snapshot", Breaks: locker.DurableServer, play: oldSnapshot,
		Story: "A server is killed and comes back with old data. The lock has had many holders since then.",
		lacks: needs(func(s *System) bool { return s.CrashOld != nil }, "no server here can come back with old data"),
	},
	{
		Name: "failover", Breaks: locker.DurableReplica, lacks: needsReplica, play: failover,
		Story: "The primary is lost while a lock is held, and a replica that had not heard of it takes over.",
	},
	{
		Name: "failover unheard", Breaks: locker.DurableReplica, lacks: both(needsReplica, needsNetwork), play: failoverUnheard,
		Story: "The same, and the holder does not hear of it: its network has fallen silent.",
	},
	{
		Name: "server stops", Breaks: locker.ServerUp, play: serverStops,
		Story: "The servers stop for longer than the lease, and then go on as if nothing had happened.",
		lacks: needs(func(s *System) bool { return s.Pause != nil }, "there is no server to stop"),
	},
	{
		Name: "as many servers down as are tolerated", play: minorityLost,
		Story: "Servers are killed while a lock is held, the leader first, as many as the declaration tolerates.",
		lacks: needs(func(s *System) bool { return s.KillMinority != nil }, "none may fail"),
	},
	{
		Name: "majority lost", Breaks: locker.ServerUp, play: majorityLost,
		Story: "More servers are killed than the declaration tolerates, and come back with their disks.",
		lacks: needs(func(s *System) bool { return s.KillMajority != nil }, "there is one server"),
	},
}

const (
	crashAndReturn = "a server crashes and comes back"
	takesOver      = "the primary is lost, the replica takes over"
)

func serverCrashes(p *play) { p.crash(crashAndReturn, p.System.CrashKeeping) }

func serverCrashesUnheard(p *play) {
	p.TTL *= slower
	a, b := p.Worker("A"), p.Worker("B")
	p.prepare()
	p.unheard(a, b, crashAndReturn, p.System.CrashKeeping)
}

func serverForgets(p *play) { p.crash("a server comes back empty", p.System.CrashEmpty) }

func oldSnapshot(p *play) {
	a := p.Worker("A")
	a.Lock().Unlock()
	p.Arrange("a snapshot is taken", p.System.Snapshot)
	for range 5 {
		a.Lock().Unlock()
	}
	p.crash("a server comes back with the snapshot", p.System.CrashOld)
}

func failover(p *play)        { p.failOver(p.followUpBy) }
func failoverUnheard(p *play) { p.failOver(p.unheardBy) }

func serverStops(p *play) {
	p.outage("the servers stop", p.System.Pause, "the servers go on", p.System.Resume)
}

func minorityLost(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	held := a.Lock()
	p.Break("servers are killed", p.System.KillMinority)
	waiting := b.Locking()
	p.Sleep(p.TTL / 2)
	held.Write(1)
	held.Unlock()
	next := waiting.now().NextWithin(p.long()+5*time.Second, func() {})
	next.Write(2)
	next.Unlock()
}

func majorityLost(p *play) {
	p.outage("a majority is killed", p.System.KillMajority, "they come back", p.System.Restore)
}

// crash breaks the store by f while A holds the lock. If B gets it while A believes, both
// write.
func (p *play) crash(what string, f func() error) {
	p.TTL *= slower
	p.crashUnder(p.Worker("A2"), p.Worker("B"), what, f)
}

// crashUnder is crash for workers that are there.
func (p *play) crashUnder(a, b *worker, what string, f func() error) {
	p.prepare()
	held := a.Lock()
	held.Write(1)
	p.followUpBy(held, b, what, f)
}

// prepare is called before the lock is taken, when the workers have started.
func (p *play) prepare() {
	if p.System.Prepare != nil {
		p.must(p.System.Prepare())
	}
}

// outage takes the store away from a holder and a waiter for longer than a lease.
func (p *play) outage(ends string, end func() error, begins string, begin func() error) {
	a, b := p.Worker("A"), p.Worker("B")
	held := a.Lock()
	waiting := b.Locking()
	p.Sleep(shortly)
	down := now()
	p.Break(ends, end)
	p.Sleep(p.TTL + p.TTL/2)
	held.Write(1)
	p.Break(begins, begin)
	out := now().Sub(down)
	p.followUp(held, waiting)
	p.Waited = max(p.Waited, out)
}

// failOver loses the primary, by then, after A was granted a lock of which the replica
// has not heard.
func (p *play) failOver(then func(held workerLock, b *worker, what string, f func() error)) {
	p.TTL *= slower
	a, b := p.Worker("A"), p.Worker("B")
	a.Lock().Unlock()
	p.Break("the replica no longer hears of anything", p.System.Lag)
	held, granted := a.tryUnconfirmed()
	if !granted { // nothing is granted that the replica does not have
		p.Break(takesOver, p.System.FailOver)
		b.Next().Unlock()
		return
	}
	then(held, b, takesOver, p.System.FailOver)
}

// followUpBy breaks the store by f while A holds the lock, and has B come at once.
func (p *play) followUpBy(held workerLock, b *worker, what string, f func() error) {
	p.Break(what, f)
	p.followUp(held, b.Locking())
}

// followUp has the former holder and the next one write after a fault, if they believe
// that they may.
func (p *play) followUp(held workerLock, waiting pending) {
	next, ok := waiting.Within(p.TTL / 2)
	if ok {
		p.Waited = now().Sub(waiting.since)
		next.Write(2)
		held.Write(1)
		next.Write(2)
		held.Unlock()
		next.Unlock()
		return
	}
	held.Write(1)
	held.Unlock()
	next = waiting.now().NextWithin(p.long()+5*time.Second, func() {})
	next.Write(2)
	next.Unlock()
}

// unheard breaks the store by f while A holds the lock and cannot hear of it.
func (p *play) unheard(a, b *worker, what string, f func() error) {
	held := a.Lock()
	held.Write(1)
	p.unheardBy(held, b, what, f)
}

// unheardBy breaks the store by f when the holder of a lock can no longer hear of it. B
// comes afterwards.
func (p *play) unheardBy(held workerLock, b *worker, what string, f func() error) {
	a := held.Worker
	p.cut(a)
	p.Break(what, f)
	next := b.Locking().NextWithin(p.long(), a.Net.Heal)
	next.Write(2)
	held.Write(1)
	p.heal(a)
	next.Unlock()
}
