package matrix

import (
	"errors"
	"fmt"
)

// tornScenarios tear an attempt or a release between what it asks of the store
// first and what it asks then. One that is a single request has no such place.
func tornScenarios() []Scenario {
	all := []Scenario{
		{
			Name:  "death before the answer",
			Story: "A process is killed when its attempt has reached the store and the answer has not reached the process.",
			Play: func(p *Play) {
				p.TTL *= 3 // what is granted unheard lasts until it is seen, on a busy machine
				b := p.Worker("B")
				a := p.takesUnheard(b)
				p.must(a.Kill())
				p.Sleep(shortly) // until the end of its connections has arrived
				g := b.Locking().NextWithin(p.long(), func() {})
				g.Write(2)
				g.Unlock()
			},
		},
		{
			Name:  "slow answer to an unlock",
			Story: "The answer to an unlock is so slow that somebody else holds the lock when it comes.",
			Play: func(p *Play) {
				a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
				a.warmUp()
				g := a.LockPlain()
				p.Break("answers to A are slow", func() error { a.Net.CutReplies(); return nil })
				freed := g.free()
				a.heldBack("the answer to A's unlock", replies, func() <-chan report { return freed })
				next := b.LockingLong().NextWithin(p.long(), p.late("the answer to A's unlock"))
				p.answers(a, freed)
				p.nobodyElse(c)
				next.Write(2)
				next.Unlock()
			},
		},
		{
			Name:  "slow second answer",
			Story: "An attempt hears the first answer at once, and a second one only when the lock that it asked about has ended and somebody else holds the next.",
			Play: func(p *Play) {
				a, b, c, d := p.Worker("A"), p.Worker("B"), p.Worker("C"), p.Worker("D")
				b.warmUp()
				first := a.LockPlain()
				p.Break("B is answered once more, and then slowly", func() error { b.Net.CutRepliesAfterOne(); return nil })
				tried := b.trying()
				first.AwaitLoss()
				next := c.LockingLong().NextWithin(p.long(), b.Net.Deliver)
				p.answers(b, tried)
				p.Sleep(p.TTL) // what B may have left in the store as its own has ended
				p.nobodyElse(d)
				next.Write(2)
				next.Unlock()
			},
		},
	}
	for i := range all {
		all[i].Needs = wantNetwork
	}
	all[0].Needs = func(s *System) string {
		if s.Register != nil {
			return "a transaction begins before it asks for the lock, and its beginning holds nothing"
		}
		return wantNetwork(s)
	}
	return all
}

// trying starts a Try. What it is granted it does not renew: nobody asks for it.
func (w *Worker) trying() <-chan report {
	return w.tell(w.fill(order{Verb: "try", NoRenew: true, Bound: w.play.long()}))
}

// answers lets a worker hear the rest of what it was answered, and waits until it
// has done what it does then.
func (p *Play) answers(w *Worker, ch <-chan report) {
	p.Break(fmt.Sprintf("the answers to %s arrive", w.Name), func() error { w.Net.Deliver(); return nil })
	r, err := w.answer(p.ctx, ch)
	p.must(err)
	if r.Err != "" {
		p.History.mark("%s: %s", w.Name, r.Err)
	}
}

// takesUnheard returns a worker whose attempt has taken the lock and has not heard
// of it, which other sees. On a busy machine the attempt may come after other's
// look, and then find the lock taken itself: another worker tries, for longer.
func (p *Play) takesUnheard(other *Worker) *Worker {
	for patient := shortly; patient < p.TTL; patient *= 2 {
		w := p.Worker("A")
		w.warmUp()
		p.Break("answers to A are held back", func() error { w.Net.CutReplies(); return nil })
		w.Locking()
		p.Sleep(patient)
		g, err := other.Try(p.TTL / 2) // a lock that knows no Try waits for so long
		var no *refusal
		switch {
		case errors.As(err, &no) && no.Taken:
			return w
		case err == nil:
			g.Unlock()
		case no == nil:
			p.must(err)
		}
		p.must(w.Kill())
	}
	p.miss("no attempt took the lock unheard: nothing was torn")
	return nil
}
