package matrix

import (
	"errors"
	"time"

	"github.com/lockstile/locker"
)

func now() locker.Instant { return locker.Now() }

const (
	noCrash   = "there is no server to crash"
	noReplica = "there is no replica that could take over"
)

func serverScenarios() []Scenario {
	return []Scenario{
		{
			Name:   "server crashes",
			Story:  "A server is killed while a lock is held, and comes back with what it has on disk.",
			Breaks: locker.DurableServer,
			Needs:  want(func(s *System) bool { return s.CrashKeeping != nil }, noCrash),
			Play:   func(p *Play) { p.crash("a server crashes and comes back", p.System.CrashKeeping) },
		},
		{
			Name:   "server crashes unheard",
			Story:  "The same, and the holder does not hear of it: its network has fallen silent.",
			Breaks: locker.DurableServer,
			Needs: func(s *System) string {
				if s.CrashKeeping == nil {
					return noCrash
				}
				return wantNetwork(s)
			},
			Play: func(p *Play) {
				p.TTL *= slower
				a, b := p.Worker("A"), p.Worker("B")
				p.prepare()
				p.unheard(a, b, "a server crashes and comes back", p.System.CrashKeeping)
			},
		},
		{
			Name:   "server forgets",
			Story:  "A server is killed while a lock is held, and comes back without its data.",
			Breaks: locker.DurableServer,
			Needs:  want(func(s *System) bool { return s.CrashEmpty != nil }, "no server here can come back without its data"),
			Play:   func(p *Play) { p.crash("a server comes back empty", p.System.CrashEmpty) },
		},
		{
			Name:   "old snapshot",
			Story:  "A server is killed and comes back with the data of some time ago; the lock had many holders since.",
			Breaks: locker.DurableServer,
			Needs:  want(func(s *System) bool { return s.CrashOld != nil }, "no server here can come back with old data"),
			Play: func(p *Play) {
				a := p.Worker("A")
				a.Lock().Unlock()
				p.Arrange("a snapshot is taken", p.System.Snapshot)
				for range 5 {
					a.Lock().Unlock()
				}
				p.crash("a server comes back with the snapshot", p.System.CrashOld)
			},
		},
		{
			Name:   "failover",
			Story:  "The primary is lost while a lock is held, and a replica that had not heard of it takes over.",
			Breaks: locker.DurableReplica,
			Needs:  want(func(s *System) bool { return s.FailOver != nil }, noReplica),
			Play:   func(p *Play) { p.failOver(p.followUpBy) },
		},
		{
			Name:   "failover unheard",
			Story:  "The same, and the holder does not hear of it: its network has fallen silent.",
			Breaks: locker.DurableReplica,
			Needs: func(s *System) string {
				if s.FailOver == nil {
					return noReplica
				}
				return wantNetwork(s)
			},
			Play: func(p *Play) { p.failOver(p.unheardBy) },
		},
		{
			Name:   "server stops",
			Story:  "The servers stop for longer than the lease, and then go on as if nothing had happened.",
			Breaks: locker.ServerUp,
			Needs:  want(func(s *System) bool { return s.Pause != nil }, "there is no server to stop"),
			Play: func(p *Play) {
				p.outage("the servers stop", p.System.Pause, "the servers go on", p.System.Resume)
			},
		},
		{
			Name:  "as many servers down as are tolerated",
			Story: "Servers are killed while a lock is held, the leader first, as many as the declaration tolerates.",
			Needs: want(func(s *System) bool { return s.KillMinority != nil }, "none may fail"),
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				g := a.Lock()
				p.Break("servers are killed", p.System.KillMinority)
				waiting := b.Locking()
				p.Sleep(p.TTL / 2)
				g.Write(1)
				g.Unlock()
				next := waiting.now().NextWithin(p.long()+5*time.Second, func() {})
				next.Write(2)
				next.Unlock()
			},
		},
		{
			Name:   "majority lost",
			Story:  "More servers are killed than are tolerated, and come back with their disks.",
			Breaks: locker.ServerUp,
			Needs:  want(func(s *System) bool { return s.KillMajority != nil }, "there is one server"),
			Play: func(p *Play) {
				p.outage("a majority is killed", p.System.KillMajority, "they come back", p.System.Restore)
			},
		},
	}
}

// slower makes leases last so long that the holder's next renewal, which would
// tell it of what happened, comes after the restart of a server and the next
// holder's first write, on any machine.
const slower = 6

// tryUnheard tries for a lock of which no replica hears.
func (w *Worker) tryUnheard() (Grant, bool) {
	asked := now()
	g, err := w.Try(2 * time.Second)
	var no *refusal
	switch {
	case err == nil:
		return g, true
	case !errors.As(err, &no):
		w.play.must(err)
	case !no.unconfirmed(now().Sub(asked)):
		w.play.miss("%w: that is not for want of a replica", no)
	default:
		w.play.History.mark("%v", no)
	}
	return Grant{}, false
}

// unconfirmed reports whether a refusal that took so long can come of a store that
// has waited in vain for its replica. Any other says nothing about replicas.
func (no *refusal) unconfirmed(took time.Duration) bool {
	return !no.Taken && (no.NoStore || no.Unknown) && took >= shortly
}

// crash breaks the store while A holds the lock. If B gets it while A believes,
// both write.
func (p *Play) crash(what string, f func() error) {
	p.TTL *= slower
	p.crashUnder(p.Worker("A2"), p.Worker("B"), what, f)
}

// outage takes the store away from a holder and a waiter for longer than a lease.
func (p *Play) outage(ends string, end func() error, begins string, begin func() error) {
	a, b := p.Worker("A"), p.Worker("B")
	g := a.Lock()
	waiting := b.Locking()
	p.Sleep(shortly)
	down := now()
	p.Break(ends, end)
	p.Sleep(p.TTL + p.TTL/2)
	g.Write(1)
	p.Break(begins, begin)
	out := now().Sub(down)
	p.followUp(g, waiting)
	p.Waited = max(p.Waited, out)
}

// prepare is for the workers that are there.
func (p *Play) prepare() {
	if p.System.Prepare != nil {
		p.must(p.System.Prepare())
	}
}

func (p *Play) crashUnder(a, b *Worker, what string, f func() error) {
	p.prepare()
	g := a.Lock()
	g.Write(1)
	p.Break(what, f)
	p.followUp(g, b.Locking())
}

// failOver loses the primary after A was granted a lock of which the replica has
// not heard. then breaks it, by f.
func (p *Play) failOver(then func(g Grant, b *Worker, what string, f func() error)) {
	p.TTL *= slower
	a, b := p.Worker("A"), p.Worker("B")
	a.Lock().Unlock()
	p.Break("the replica no longer hears of anything", p.System.Lag)
	const what = "the primary is lost, the replica takes over"
	g, granted := a.tryUnheard()
	if !granted { // nothing is granted that the replica does not have
		p.Break(what, p.System.FailOver)
		b.Next().Unlock()
		return
	}
	then(g, b, what, p.System.FailOver)
}

// followUpBy breaks the store while A holds the lock, and has B come at once.
func (p *Play) followUpBy(g Grant, b *Worker, what string, f func() error) {
	p.Break(what, f)
	p.followUp(g, b.Locking())
}

// unheard breaks the store while A holds the lock and cannot hear of it.
func (p *Play) unheard(a, b *Worker, what string, f func() error) {
	g := a.Lock()
	g.Write(1)
	if p.System.Prepare == nil { // where some servers are silent, some clients wait for them until the lease is over
		for range 3 { // in one second, so that PostgreSQL has statistics to write: see outlook
			g.Renew()
		}
	}
	p.unheardBy(g, b, what, f)
}

// unheardBy breaks the store when the holder of a lock cannot hear of it any more.
// B comes afterwards.
func (p *Play) unheardBy(g Grant, b *Worker, what string, f func() error) {
	a := g.Worker
	p.Break("A is cut off", func() error { a.Net.Cut(); return nil })
	p.Break(what, f)
	next := b.Locking().NextWithin(p.long(), a.Net.Heal)
	next.Write(2)
	g.Write(1)
	p.Break("the network of A is healed", func() error { a.Net.Heal(); return nil })
	next.Unlock()
}

// followUp has the former holder and the next one write after a fault, wherever
// they believe that they may.
func (p *Play) followUp(g Grant, waiting Waiting) {
	next, ok := waiting.Within(p.TTL / 2)
	if ok {
		p.Waited = now().Sub(waiting.since)
		next.Write(2)
		g.Write(1)
		next.Write(2)
		g.Unlock()
		next.Unlock()
		return
	}
	g.Write(1)
	g.Unlock()
	next = waiting.now().NextWithin(p.long()+5*time.Second, func() {})
	next.Write(2)
	next.Unlock()
}
