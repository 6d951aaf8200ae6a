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
				a, b := p.Worker("A"), p.Worker("B")
				a.warmUp()
				p.Break("answers to A are held back", func() error { a.Net.CutReplies(); return nil })
				a.Locking()
				p.Sleep(shortly)
				p.awaitTaken(b)
				p.must(a.Kill())
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
				next := b.LockingLong().NextWithin(p.long(), a.Net.Deliver)
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

// awaitTaken waits until the store says that the lock is taken, by an attempt that
// has heard of nothing.
func (p *Play) awaitTaken(w *Worker) {
	for end := now().Add(patience); now() < end; p.Sleep(shortly) {
		g, err := w.Try(patience)
		var no *refusal
		switch {
		case err == nil:
			g.Unlock()
		case !errors.As(err, &no):
			p.must(err)
		case no.Taken:
			return
		}
	}
	p.must(errors.New("no attempt of which nobody has heard holds the lock: nothing was torn"))
}
