package matrix

import (
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
)

var networkScenarios = []Scenario{
	{
		Name: "holder cut off", lacks: needsNetwork, play: holderCutOff,
		Story: "The network between a holder and the store is cut, and nobody tells the holder.",
	},
	{
		Name: "holder deaf", lacks: needsNetwork, play: holderDeaf,
		Story: "The store's answers to a holder are lost. The holder's requests arrive.",
	},
	{
		Name: "told nothing", Breaks: locker.ServerUp, lacks: needsNetwork, play: toldNothing,
		Story: "A holder's connections end on the store's side, and the holder is not told: something in between has dropped them.",
	},
	{
		Name: "lost reply to a lock", lacks: needsNetwork, play: lostReplyToALock,
		Story: "The store grants an attempt, but the answer is lost with its connection, and the caller has given up.",
	},
	{
		Name: "late lock", lacks: needsNetwork, play: lateLock,
		Story: "An attempt is delivered to the store after its caller has given up and cleaned up over another connection.",
	},
	{
		Name: "lost reply to an unlock", lacks: needsNetwork, play: lostReplyToAnUnlock,
		Story: "A holder unlocks, and the answer is lost.",
	},
	{
		Name: "late unlock", lacks: needsNetwork, play: lateUnlock,
		Story: "The network delivers an unlock so late that somebody else already holds the lock.",
	},
	{
		Name: "late renewal", lacks: needsRenewal, play: lateRenewal,
		Story: "The network delivers a renewal so late that the lock has ended and somebody else holds it.",
	},
	{
		Name: "slow answer", lacks: needsNetwork, play: slowAnswer,
		Story: "The answer to an attempt takes longer than the lease that it grants.",
	},
	{
		Name: "slow renewal", lacks: needsNetwork, play: slowRenewal,
		Story: "The answer to a holder's renewal is slow, and then the holder is cut off. The lease must count from the request, not from the answer.",
	},
	{
		Name: "waiter cut off", lacks: needsNetwork, play: waiterCutOff,
		Story: "The network of the first waiter is cut when its turn comes.",
	},
	{
		Name: "lost notification", lacks: needsNetwork, play: lostNotification,
		Story: "The store tells the waiter whose turn has come, and the message is lost with its connection.",
	},
}

func needsRenewal(s *System) string {
	if s.RenewsItself {
		return "the client renews by itself, when it likes"
	}
	return needsNetwork(s)
}

// arriving is how long a late delivery may take, on a busy machine.
const arriving = time.Second

func holderCutOff(p *play) { p.cutOff(conformance.Network.Cut) }
func holderDeaf(p *play)   { p.cutOff(conformance.Network.CutReplies) }
func toldNothing(p *play)  { p.cutOff(conformance.Network.EndUnheard) }

// cutOff cuts a holder off. It must cease to believe before somebody else gets the lock.
// Where only the end of the connection frees a lock, the network is healed after a while,
// which ends the connection.
func (p *play) cutOff(cut func(conformance.Network)) {
	a, b := p.Worker("A"), p.Worker("B")
	held := a.Lock()
	held.Write(1)
	waiting := b.Locking()
	p.Break("A is cut off", func() error { cut(a.Net); return nil })
	next := waiting.NextWithin(p.long(), a.Net.Heal)
	next.Write(2)
	held.Write(1)
	p.heal(a)
	next.Unlock()
}

func (p *play) cut(w *worker) {
	p.Break(w.Name+" is cut off", func() error { w.Net.Cut(); return nil })
}

func (p *play) heal(w *worker) {
	p.Break("the network of "+w.Name+" is healed", func() error { w.Net.Heal(); return nil })
}

func lostReplyToALock(p *play) {
	p.TTL *= slower // what is left behind lasts longer than any network is slow
	a, b := p.Worker("A"), p.Worker("B")
	a.warmUp()
	p.Break("answers to A are held back", func() error { a.Net.CutReplies(); return nil })
	var err error
	a.heldBack("the answer to A", replies, func() <-chan report {
		_, err = a.Try(shortly) // no answer comes, so nothing can be granted
		return nil
	})
	p.Break("they are lost with their connections", func() error { a.Net.Heal(); return nil })
	p.checkNothingHeld(err, b)
	next := b.Next()
	next.Write(2)
	next.Unlock()
	b.Lock().Unlock()
}

func lateLock(p *play) {
	p.TTL *= slower // as above
	a, b := p.Worker("A"), p.Worker("B")
	a.warmUp()
	p.Break("what A sends over its open connections is held back", func() error { a.Net.Stall(); return nil })
	var first workerLock
	var err error
	a.heldBack("A's attempt", requests, func() <-chan report {
		first, err = a.Try(shortly) // nothing of it has arrived
		return nil
	})
	p.deliverLate(a)
	if err == nil { // it was asked for again, over other connections
		first.Unlock()
	}
	p.checkNothingHeld(err, b)
	next := b.Locking().NextWithin(p.long(), a.Net.Heal)
	next.Write(2)
	next.Unlock()
}

// deliverLate delivers what a worker has sent, and waits until it has arrived.
func (p *play) deliverLate(w *worker) {
	p.Break("what "+w.Name+" sent is delivered late", func() error { w.Net.Deliver(); return nil })
	p.Sleep(arriving)
}

func lostReplyToAnUnlock(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	a.warmUp()
	held := a.Lock()
	held.Write(1)
	p.Break("answers to A are lost", func() error { a.Net.CutReplies(); return nil })
	a.heldBack("the answer to A's unlock", replies, held.unlocking)
	next := b.Locking().NextWithin(p.long(), a.Net.Heal)
	next.Write(2)
	next.Unlock()
}

func lateUnlock(p *play) {
	a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
	a.warmUp()
	held := a.LockPlain()
	p.cut(a)
	a.heldBack("A's unlock", requests, held.unlocking)
	next := b.Locking().NextWithin(p.long(), p.late("A's unlock"))
	p.deliverLate(a)
	p.nobodyElse(c)
	next.Write(2)
	next.Unlock()
}

func lateRenewal(p *play) {
	a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
	held := a.Lock()
	held.Renew()
	p.cut(a)
	a.heldBack("A's renewal", requests, held.renewing)
	next := b.LockingLong().NextWithin(p.long(), p.late("A's renewal"))
	p.deliverLate(a)
	p.nobodyElse(c)
	next.Write(2)
	held.Write(1)
	next.Unlock()
}

func slowAnswer(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	a.warmUp()
	p.Break("answers to A are slow", func() error { a.Net.CutReplies(); return nil })
	var first pending
	a.heldBack("the answer to A", replies, func() <-chan report {
		first = a.Locking()
		p.Sleep(p.TTL + p.TTL/4)
		return nil
	})
	second := b.Locking()
	p.Sleep(p.TTL * 2 / 5) // a renewal is asked for, and not yet given up
	p.Break("the answers arrive", func() error { a.Net.Deliver(); return nil })
	p.Serve(p.TTL/2, first, second)
}

func slowRenewal(p *play) {
	p.TTL *= 2 // the answer has to come within a part of it
	a, b := p.Worker("A"), p.Worker("B")
	a.warmUp()
	held := a.Lock()
	waiting := b.Locking()
	p.Sleep(p.TTL / 2)
	p.Break("answers to A are slow", func() error { a.Net.CutReplies(); return nil })
	a.heldBack("the answer to A's renewal", replies, func() <-chan report {
		p.Sleep(p.TTL * 2 / 5) // a renewal is asked for, and not yet given up
		return nil
	})
	p.Break("the answers arrive", func() error { a.Net.Deliver(); return nil })
	p.Sleep(p.TTL / 20)
	p.cut(a)
	next := waiting.now().NextWithin(p.long(), a.Net.Heal)
	next.Write(2)
	held.Write(1)
	next.Unlock()
}

func waiterCutOff(p *play) {
	held, b, first, second := p.queue()
	p.cut(b)
	b.heldBack("word to B, or from it", anything, func() <-chan report {
		held.Unlock()
		return nil
	})
	p.passOver(first, second, func() { p.heal(b) })
}

func lostNotification(p *play) {
	a, b := p.Worker("A"), p.Worker("B")
	held := a.Lock()
	first := b.Locking()
	p.Sleep(shortly)
	p.Break("answers to B are held back", func() error { b.Net.CutReplies(); return nil })
	b.heldBack("word to B", replies, func() <-chan report {
		held.Unlock()
		p.Sleep(shortly)
		return nil
	})
	p.Break("they are lost with their connections", func() error { b.Net.Heal(); return nil })
	first.now().NextWithin(p.long(), func() {}).Unlock()
}

// warmUp has the worker connect and greet the store, so that what it does next is sent at
// once, in one request. Once is not enough: some clients prepare a request when they send
// it for the second time.
func (w *worker) warmUp() {
	for range 2 {
		w.Lock().Unlock()
	}
}
