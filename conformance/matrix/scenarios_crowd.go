package matrix

import "fmt"

func crowdScenarios() []Scenario {
	return []Scenario{
		{
			Name:  "herd",
			Story: "Four processes want the lock four times each, all at once.",
			Play: func(p *Play) {
				var all []Waiting
				for i := range 4 {
					w := p.Worker(fmt.Sprintf("%c", 'A'+i))
					for range 4 {
						all = append(all, w.Locking())
					}
				}
				p.Serve(0, all...)
			},
		},
		{
			Name:  "dead waiter",
			Story: "The first waiter's process is killed before its turn comes.",
			Play: func(p *Play) {
				g, b, _, second := p.queue()
				p.must(b.Kill())
				p.Sleep(shortly) // until the end of its connections has arrived
				g.Unlock()
				next := second.now().NextWithin(p.long(), func() {})
				next.Write(3)
				next.Unlock()
			},
		},
		{
			Name:  "suspended waiter",
			Story: "The first waiter's process is stopped when its turn comes.",
			Play: func(p *Play) {
				g, b, first, second := p.queue()
				p.must(b.Suspend())
				g.Unlock()
				p.passOver(first, second, func() { p.must(b.Wake()) })
			},
		},
	}
}

// queue is a holder and two who wait, b being the first.
func (p *Play) queue() (holder Grant, b *Worker, first, second Waiting) {
	a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
	holder = a.Lock()
	first = b.Locking()
	p.Sleep(shortly)
	second = c.Locking()
	p.Sleep(shortly)
	return holder, b, first, second
}

// passOver has the second waiter get the lock that the first, whose turn it is,
// cannot take. If it does not come, the first is mended, and whoever of the two
// gets it gives it to the other.
func (p *Play) passOver(first, second Waiting, mend func()) {
	second.since = now()
	next, ok := second.Within(p.long())
	p.Waited = now().Sub(second.since)
	if !ok {
		mend()
		p.Serve(0, first, second)
		return
	}
	next.Write(3)
	mend()
	next.Unlock()
	p.Serve(0, first)
}
