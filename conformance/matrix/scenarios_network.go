package matrix

import (
	"time"

	"github.com/lockstile/locker"
)

// shortly is the deadline of an attempt whose answer will not come.
const shortly = 300 * time.Millisecond

// arriving is how long what is delivered late has to arrive, on a busy machine.
const arriving = time.Second

func networkScenarios() []Scenario {
	all := []Scenario{
		{
			Name:  "holder cut off",
			Story: "The network between a holder and the store is cut; nobody tells it.",
			Play:  func(p *Play) { p.cutOff(func(n Network) { n.Cut() }) },
		},
		{
			Name:  "holder deaf",
			Story: "What the store answers to a holder is lost; what the holder sends arrives.",
			Play:  func(p *Play) { p.cutOff(func(n Network) { n.CutReplies() }) },
		},
		{
			Name:   "told nothing",
			Story:  "A holder's connections end on the store's side, and the holder is not told: something in between has dropped them.",
			Breaks: locker.ServerUp,
			Play:   func(p *Play) { p.cutOff(func(n Network) { n.EndUnheard() }) },
		},
		{
			Name:  "lost reply to a lock",
			Story: "The store grants an attempt, and the answer is lost with its connection; the caller has given up.",
			Play: func(p *Play) {
				p.TTL *= slower // what is left behind lasts longer than any network is slow
				a, b := p.Worker("A"), p.Worker("B")
				a.warmUp()
				p.Break("answers to A are held back", func() error { a.Net.CutReplies(); return nil })
				var told error
				a.heldBack("the answer to A", replies, func() <-chan report {
					_, told = a.Try(shortly) // it cannot be granted: nobody would know
					return nil
				})
				p.Break("they are lost with their connections", func() error { a.Net.Heal(); return nil })
				p.holdsTrue(told, b)
				g := b.Next()
				g.Write(2)
				g.Unlock()
				b.Lock().Unlock()
			},
		},
		{
			Name:  "late lock",
			Story: "An attempt is delivered to the store after its caller has given up and cleaned up over another connection.",
			Play: func(p *Play) {
				p.TTL *= slower // as above
				a, b := p.Worker("A"), p.Worker("B")
				a.warmUp()
				p.Break("what A sends over its open connections is held back", func() error { a.Net.Stall(); return nil })
				var first Grant
				var told error
				a.heldBack("A's attempt", requests, func() <-chan report {
					first, told = a.Try(shortly) // nothing of it has arrived
					return nil
				})
				p.Break("what A sent is delivered late", func() error { a.Net.Deliver(); return nil })
				p.Sleep(arriving)
				if told == nil { // it was asked for again, over other connections
					first.Unlock()
				}
				p.holdsTrue(told, b)
				g := b.Locking().NextWithin(p.long(), a.Net.Heal)
				g.Write(2)
				g.Unlock()
			},
		},
		{
			Name:  "lost reply to an unlock",
			Story: "A holder unlocks and does not hear that it worked.",
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				a.warmUp()
				g := a.Lock()
				g.Write(1)
				p.Break("answers to A are lost", func() error { a.Net.CutReplies(); return nil })
				a.heldBack("the answer to A's unlock", replies, g.free)
				next := b.Locking().NextWithin(p.long(), a.Net.Heal)
				next.Write(2)
				next.Unlock()
			},
		},
		{
			Name:  "late unlock",
			Story: "An unlock is delivered when somebody else already holds the lock.",
			Play: func(p *Play) {
				a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
				a.warmUp()
				g := a.LockPlain()
				p.Break("A is cut off", func() error { a.Net.Cut(); return nil })
				a.heldBack("A's unlock", requests, g.free)
				next := b.Locking().NextWithin(p.long(), p.late("A's unlock"))
				p.Break("what A sent is delivered late", func() error { a.Net.Deliver(); return nil })
				p.Sleep(arriving)
				p.nobodyElse(c)
				next.Write(2)
				next.Unlock()
			},
		},
		{
			Name:  "late renewal",
			Story: "A renewal is delivered when the lock has ended and somebody else holds it.",
			Needs: func(s *System) string {
				if s.RenewsItself {
					return "the client renews by itself, when it likes"
				}
				return wantNetwork(s)
			},
			Play: func(p *Play) {
				a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
				g := a.Lock()
				g.Renew()
				p.Break("A is cut off", func() error { a.Net.Cut(); return nil })
				a.heldBack("A's renewal", requests, g.renewing)
				next := b.LockingLong().NextWithin(p.long(), p.late("A's renewal"))
				p.Break("what A sent is delivered late", func() error { a.Net.Deliver(); return nil })
				p.Sleep(arriving)
				p.nobodyElse(c)
				next.Write(2)
				g.Write(1)
				next.Unlock()
			},
		},
		{
			Name:  "slow answer",
			Story: "The answer to an attempt takes longer than the lease that it grants.",
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				a.warmUp()
				p.Break("answers to A are slow", func() error { a.Net.CutReplies(); return nil })
				var first Waiting
				a.heldBack("the answer to A", replies, func() <-chan report {
					first = a.Locking()
					p.Sleep(p.TTL + p.TTL/4)
					return nil
				})
				second := b.Locking()
				p.Sleep(p.TTL * 2 / 5) // a renewal is asked for, and not yet given up
				p.Break("the answers arrive", func() error { a.Net.Deliver(); return nil })
				p.Serve(p.TTL/2, first, second)
			},
		},
		{
			Name:  "slow renewal",
			Story: "The answer to a holder's renewal is slow, and then the holder is cut off: the lease counts from the question.",
			Play: func(p *Play) {
				p.TTL *= 2 // the answer has to come within a part of it
				a, b := p.Worker("A"), p.Worker("B")
				a.warmUp()
				g := a.Lock()
				waiting := b.Locking()
				p.Sleep(p.TTL / 2)
				p.Break("answers to A are slow", func() error { a.Net.CutReplies(); return nil })
				a.heldBack("the answer to A's renewal", replies, func() <-chan report {
					p.Sleep(p.TTL * 2 / 5) // a renewal is asked for, and not yet given up
					return nil
				})
				p.Break("the answers arrive", func() error { a.Net.Deliver(); return nil })
				p.Sleep(p.TTL / 20)
				p.Break("A is cut off", func() error { a.Net.Cut(); return nil })
				next := waiting.now().NextWithin(p.long(), a.Net.Heal)
				next.Write(2)
				g.Write(1)
				next.Unlock()
			},
		},
		{
			Name:  "waiter cut off",
			Story: "The network of the first waiter is cut when its turn comes.",
			Play: func(p *Play) {
				g, b, first, second := p.queue()
				p.Break("B is cut off", func() error { b.Net.Cut(); return nil })
				b.heldBack("word to B, or from it", anything, func() <-chan report {
					g.Unlock()
					return nil
				})
				p.passOver(first, second, func() {
					p.Break("the network of B is healed", func() error { b.Net.Heal(); return nil })
				})
			},
		},
		{
			Name:  "lost notification",
			Story: "The waiter whose turn has come is told, and the message is lost with its connection.",
			Play: func(p *Play) {
				a, b := p.Worker("A"), p.Worker("B")
				g := a.Lock()
				first := b.Locking()
				p.Sleep(shortly)
				p.Break("answers to B are held back", func() error { b.Net.CutReplies(); return nil })
				b.heldBack("word to B", replies, func() <-chan report {
					g.Unlock()
					p.Sleep(shortly)
					return nil
				})
				p.Break("they are lost with their connections", func() error { b.Net.Heal(); return nil })
				first.now().NextWithin(p.long(), func() {}).Unlock()
			},
		},
	}
	for i := range all {
		if all[i].Needs == nil {
			all[i].Needs = wantNetwork
		}
	}
	return all
}

// warmUp has the worker connect and greet the store, so that what it does next is
// sent at once, in one request. Once is not enough: some prepare what they send
// when they send it for the second time.
func (w *Worker) warmUp() {
	for range 2 {
		w.Lock().Unlock()
	}
}

// cutOff cuts a holder off. It must cease to believe before somebody else gets
// the lock. Where only the end of the connection frees a lock, the network is
// healed after a while, which ends the connection.
func (p *Play) cutOff(cut func(Network)) {
	a, b := p.Worker("A"), p.Worker("B")
	g := a.Lock()
	g.Write(1)
	waiting := b.Locking()
	p.Break("A is cut off", func() error { cut(a.Net); return nil })
	next := waiting.NextWithin(p.long(), a.Net.Heal)
	next.Write(2)
	g.Write(1)
	p.Break("the network of A is healed", func() error { a.Net.Heal(); return nil })
	next.Unlock()
}
