package matrix

import (
	"errors"
	"fmt"
)

// midwayScenarios interrupt an attempt or a release between its first request and its
// second. One that is a single request has no such place.
var midwayScenarios = []Scenario{
	{
		Name: "death before the answer", lacks: needsAttempt, play: deathBeforeTheAnswer,
		Story: "A process is killed after its attempt has reached the store and before the answer has reached the process.",
	},
	{
		Name: "slow answer to an unlock", lacks: needsNetwork, play: slowAnswerToAnUnlock,
		Story: "The answer to an unlock is so slow that somebody else holds the lock when it comes.",
	},
	{
		Name: "slow second answer", lacks: needsNetwork, play: slowSecondAnswer,
		Story: "An attempt hears the first answer at once. The second answer is so slow that the lock of which it speaks has ended by then, and somebody else holds the next one.",
	},
}

func needsAttempt(s *System) string {
	if s.Register != nil {
		return "a transaction begins before it asks for the lock, and its beginning holds nothing"
	}
	return needsNetwork(s)
}

func deathBeforeTheAnswer(p *play) {
	p.TTL *= 3 // what is granted unheard lasts until it is seen, on a busy machine
	b := p.Worker("B")
	a := p.takesUnheard(b)
	p.must(a.Kill())
	p.Sleep(shortly) // until the end of its connections has arrived
	next := b.Locking().NextWithin(p.long(), func() {})
	next.Write(2)
	next.Unlock()
}

func slowAnswerToAnUnlock(p *play) {
	a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
	a.warmUp()
	held := a.LockPlain()
	p.Break("answers to A are slow", func() error { a.Net.CutReplies(); return nil })
	unlocked := held.unlocking()
	a.heldBack("the answer to A's unlock", replies, func() <-chan report { return unlocked })
	next := b.LockingLong().NextWithin(p.long(), p.late("the answer to A's unlock"))
	p.answers(a, unlocked)
	p.nobodyElse(c)
	next.Write(2)
	next.Unlock()
}

func slowSecondAnswer(p *play) {
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
}

// trying starts a Try. What it is granted it does not renew: nobody unlocks it.
func (w *worker) trying() <-chan report {
	return w.tell(w.fill(order{Verb: "try", NoRenew: true, Bound: w.play.long()}))
}

// answers delivers what a worker was answered, and waits until the order that it was
// given is done.
func (p *play) answers(w *worker, ch <-chan report) {
	p.Break(fmt.Sprintf("the answers to %s arrive", w.Name), func() error { w.Net.Deliver(); return nil })
	r, err := w.answer(p.ctx, ch)
	p.must(err)
	if r.Err != "" {
		p.History.Mark("%s: %s", w.Name, r.Err)
	}
}

// takesUnheard returns a worker whose attempt has taken the lock and has not heard of
// it: other finds the lock taken. On a busy machine other may come before the attempt,
// which then finds the lock taken itself: another worker tries, and has more time.
func (p *play) takesUnheard(other *worker) *worker {
	for wait := shortly; wait < p.TTL; wait *= 2 {
		w := p.Worker("A")
		w.warmUp()
		p.Break("answers to A are held back", func() error { w.Net.CutReplies(); return nil })
		w.Locking()
		p.Sleep(wait)
		l, err := other.Try(p.TTL / 2) // a lock that knows no Try waits for so long
		var no *refusal
		switch {
		case errors.As(err, &no) && no.Taken:
			return w
		case err == nil:
			l.Unlock()
		case no == nil:
			p.must(err)
		}
		p.must(w.Kill())
	}
	p.notPlayed("no attempt took the lock unheard: nothing was interrupted")
	return nil
}
