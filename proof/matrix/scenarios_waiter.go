package matrix

import (
	"fmt"

	"github.com/lockstile/locker/proof/matrix/internal/history"
)

var waiterScenarios = []Scenario{
	{
		Name: "herd", play: herd,
		Story: "Four processes start at once, and each wants the lock four times.",
	},
	{
		Name: "dead waiter", play: deadWaiter,
		Story: "The first waiter's process is killed before its turn comes.",
	},
	{
		Name: "suspended waiter", play: suspendedWaiter,
		Story: "The first waiter's process is stopped when its turn comes.",
	},
	{
		Name: "a stranger's release", play: strangersRelease,
		Story: "Another library's client has the lock, gives it back long before the end of its lease, and tells nobody.",
		lacks: needs(func(s *System) bool { return s.Stranger != nil }, "no other library's lock excludes these"),
	},
}

func herd(p *play) {
	var all []pending
	for i := range 4 {
		w := p.Worker(fmt.Sprintf("%c", 'A'+i))
		for range 4 {
			all = append(all, w.Locking())
		}
	}
	p.Serve(0, all...)
}

// strangersRelease finds a waiter that sleeps until the end of the stranger's lease: a
// standstill.
func strangersRelease(p *play) {
	a := p.Worker("A")
	release := p.stranger()
	waiting := a.Locking()
	p.Sleep(shortly)
	release()
	next := waiting.now().NextWithin(p.long(), func() {})
	next.Write(1)
	next.Unlock()
}

// stranger has another library's client take the lock, as a holder in the history that
// writes nothing and has no token.
func (p *play) stranger() (release func()) {
	const who = "a stranger"
	asked := now()
	free, err := p.System.Stranger(p.name)
	p.must(err)
	p.History.Granted(history.Span{Worker: who, Name: p.name, Asked: asked, From: now()})
	p.History.Mark("%s has the lock", who)
	return func() {
		p.History.Ceased(who, 0, now(), "given back")
		p.Break(who+" gives it back", free)
	}
}

func deadWaiter(p *play) {
	held, b, _, second := p.queue()
	p.must(b.Kill())
	p.Sleep(shortly) // until the end of its connections has arrived
	held.Unlock()
	next := second.now().NextWithin(p.long(), func() {})
	next.Write(3)
	next.Unlock()
}

func suspendedWaiter(p *play) {
	held, b, first, second := p.queue()
	p.must(b.Suspend())
	held.Unlock()
	p.passOver(first, second, func() { p.must(b.Wake()) })
}

// queue makes a queue of two behind a holder. The first of the two is b's.
func (p *play) queue() (held workerLock, b *worker, first, second pending) {
	a, b, c := p.Worker("A"), p.Worker("B"), p.Worker("C")
	held = a.Lock()
	first = b.Locking()
	p.Sleep(shortly)
	second = c.Locking()
	p.Sleep(shortly)
	return held, b, first, second
}

// passOver has the second waiter get the lock that the first, whose turn it is, cannot
// take. If it does not come, mend mends the first, and then both get it in any order.
func (p *play) passOver(first, second pending, mend func()) {
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
